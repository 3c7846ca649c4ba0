#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ranks of torch.distributed that die, or that do not fit together: NCCL must fail, and say why.

usage: bench/nccl/faults.py [--build FOLDER] [--other BUILD] [--logs FOLDER]

For a host as collectives.py wants it; without MPS, which may end with its clients. --other names
a build folder whose plugin speaks another version of the protocol.

Rank 0 has failed when NCCL reports a failure; PyTorch ends its process some time after that, for
which this does not wait. NCCL's sockets do not notice that the other end refuses them, so that a
rank without the plugin waits until it is ended, by its launcher as a rule.
"""

import argparse
import os
import re
import signal
import sys
import time
from pathlib import Path

import ranks

CALLS_BEFORE_DEATH = 50
END_SECONDS = 60
ELEMENTS = 1 << 18

# What one of the logs must contain.
REFUSED = "NCCL_NET=sennit for every rank"
VERSIONS = "versions [0-9]+ and [0-9]+"
PEER_GONE = "NET/sennit : .*(sending to|receiving from).*"


class Case:
    """Rank 0 uses the first net, rank 1 the second; `fails`: the rank whose NCCL must fail."""

    def __init__(self, name, nets, wanted, fails=0, dies=False, other=False):
        self.name, self.nets, self.wanted = name, nets, wanted
        self.fails, self.dies, self.other = fails, dies, other


CASES = [
    Case("killed, sockets of NCCL", ("socket", "socket"), None, dies=True),
    Case("killed, plugin, UDP", ("sennit-udp", "sennit-udp"), PEER_GONE, dies=True),
    Case("killed, plugin, shared memory", ("sennit-shm", "sennit-shm"), PEER_GONE, dies=True),
    Case("killed, NCCL's IB over soft devices", ("ib-shm", "ib-shm"), None, dies=True),
    Case("rank 1 without the plugin", ("sennit-shm", "socket"), REFUSED),
    Case("rank 0 without the plugin", ("socket", "sennit-shm"), REFUSED, fails=1),
    Case("another version", ("sennit-shm", "sennit-shm"), VERSIONS, other=True),
]


def run_rank(options) -> None:
    torch, dist = ranks.connect(options.rank)
    data = torch.ones(ELEMENTS, device="cuda")
    calls = 0
    while True:
        dist.all_reduce(data)
        if options.dies and calls == CALLS_BEFORE_DEATH and options.rank == 1:
            print("dies", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        torch.cuda.synchronize()
        calls += 1
        if calls == 1:
            print(f"first call done at {time.time():.3f}", flush=True)


def start(case: Case, options, port: int) -> list:
    arguments = [__file__] + (["--dies"] if case.dies else [])
    builds = [options.build, options.other if case.other else options.build]
    return [ranks.Rank(number, case.nets[number], builds[number], port, arguments)
            for number in range(ranks.RANKS)]


def sentences(text: str) -> list:
    """Those of NCCL's WARN level, and of the plugin."""
    found = [line.split("NCCL WARN")[-1].strip() for line in text.splitlines()
             if "NCCL WARN" in line]
    return list(dict.fromkeys(found))


def is_over(case: Case, pair: list) -> bool:
    rank = pair[case.fails]
    return rank.ended is not None or (rank.warned is not None and
                                      (not case.dies or pair[1].ended is not None))


def judge(case: Case, pair: list, options) -> bool:
    texts = [rank.text() for rank in pair]
    for number, text in enumerate(texts):
        if options.logs:
            name = re.sub("[^a-z0-9]+", "-", case.name.lower())
            (options.logs / f"{name}-rank{number}.log").write_text(text)
    warned, died = pair[case.fails].warned, pair[1].ended
    right = warned is not None and (died is not None or not case.dies)
    if case.wanted and not re.search(case.wanted, texts[case.fails]):
        right = False
    took = f", {warned - died:.2f} s after the end of rank 1" if right and case.dies else ""
    print(f"{'ok    ' if right else 'NOT OK'} {case.name}{took}")
    for number, text in enumerate(texts):
        for sentence in sentences(text)[:2]:
            print(f"         rank {number}: {sentence[:300]}")
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--other", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--dies", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options)
        return
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if options.other or not case.other]
    # At the same time: no figure here needs the machine for itself.
    pairs = [start(case, options, 29700 + i) for i, case in enumerate(cases)]
    everyone = [rank for pair in pairs for rank in pair]
    ranks.wait(everyone, END_SECONDS,
               lambda: all(map(is_over, cases, pairs)))
    right = [judge(case, pair, options) for case, pair in zip(cases, pairs)]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
