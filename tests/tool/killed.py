#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sennit cp under kill -9: of either end, at any time, with a source that changes in between.

usage: killed.py SENNIT [SEED [ROUNDS]]

Whatever happens, the file there is one that was whole here, and what is said of it is true;
left alone, it gets there. A round that fails is found again by its seed, as far as time
allows.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from kit import Cases, Server, Tool, wait_until

BYTES = 16 << 20


def changed(rng: random.Random, data: bytes) -> bytes:
    """The same, one bit, shorter, longer."""
    at = rng.randrange(len(data))
    data = rng.choice([data, data, data[:at] + bytes([data[at] ^ 1]) + data[at + 1:],
                       data[:at + 1], data + rng.randbytes(1 << 20)])
    return data if len(data) > 1 << 20 else rng.randbytes(BYTES)


class World:
    def __init__(self, tool: Tool, folder: Path) -> None:
        self.tool, self.there, self.source = tool, folder / "there", folder / "source"
        self.there.mkdir()
        self.start()

    def start(self) -> None:
        self.server = Server(self.tool, "serve", self.there)

    def words(self) -> list:
        # A killed end is missed soon.
        return ["cp", "--port", self.server.port, "--detect-time", "500ms", self.source,
                f"{self.server.host}:f"]

    def found(self):
        path = self.there / "f"
        return path.read_bytes() if path.exists() else None


def a_round(world: World, rng: random.Random, data: bytes):
    world.source.write_bytes(data)
    before, who = world.found(), rng.choice(["client", "server", "nobody"])
    child = world.tool.start(*world.words())
    time.sleep(rng.random() * 0.25)  # to be somewhere, and not to be anywhere in particular
    if who == "client":
        child.kill()
    elif who == "server":
        world.server.kill()
        world.server.log.close()
        world.start()
    child.communicate(timeout=60)
    found = world.found()
    if found not in (before, data):
        yield f"{who} was killed, and the file is neither the old nor the new one"
    if child.returncode == 0 and found != data:
        yield f"{who} was killed, and the client lies"


def killed(tool: Tool, seed: int, rounds: int):
    """the file is always a whole one, and gets there in the end"""
    rng = random.Random(seed)
    data = rng.randbytes(BYTES)
    with tempfile.TemporaryDirectory() as folder:
        world = World(tool, Path(folder))
        for i in range(rounds):
            data = changed(rng, data)
            yield from (f"seed {seed}, round {i}: {e}" for e in a_round(world, rng, data))
        wait_until(lambda: tool(*world.words()).returncode == 0, "a copy that is left alone")
        if world.found() != data or os.listdir(world.there) != ["f"]:
            yield f"seed {seed}: in the end there is {os.listdir(world.there)}"
        world.server.stop()
        world.server.log.close()


def main() -> None:
    seed, rounds = (list(map(int, sys.argv[2:])) + [1, 60][len(sys.argv) - 2:])[:2]
    cases = Cases()
    cases.run(killed, Tool(sys.argv[1]), seed, rounds)
    cases.report.end()


main()
