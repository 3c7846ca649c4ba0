#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sennit beside what a user would pick instead: one run, one page.

On the host and, unless --no-vm, on the kernel's rxe in a guest (tests/vm/run.py). What is not
installed is named and left out. Takes a few minutes; nothing else should run meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import page
from trial import measure_place, save_to, say

ROOT = Path(__file__).resolve().parent.parent.parent
GUEST_BOOT_S = 60


def in_guest(options: argparse.Namespace, tool: Path) -> dict:
    """The same program, in a guest; what it has saved by the end counts."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(ROOT / "tests/vm/run.py"), "--results", folder, "--deadline",
             str(int(options.budget + GUEST_BOOT_S)), "--", sys.executable,
             str(Path(__file__).resolve()), "--inside", "rxe", "--tool", str(tool), "--rounds",
             str(options.rounds), "--budget", str(options.budget), "--only", options.only],
            stdout=sys.stderr)
        saved = Path(folder, "rxe.json")
        if not saved.exists():
            raise RuntimeError(f"the guest ended with status {done.returncode} and no "
                               "result (tests/vm/README.md)")
        return json.loads(saved.read_text())


def inside(options: argparse.Namespace) -> int:
    path = Path(os.environ.get("VM_RESULTS", "."), f"{options.inside}.json")
    save = save_to(path)
    save(measure_place(options.inside, options.tool, options.rounds, options.budget, save,
                       options.only))
    return 0


def busy_share() -> float:
    """How much of all processors others use, over two seconds: the load average would tell of
    what has just ended."""
    def spent() -> list:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]

    before = spent()
    time.sleep(2)
    passed = [now - then for now, then in zip(spent(), before)]
    return 1 - (passed[3] + passed[4]) / max(sum(passed), 1)


def find_tool(options: argparse.Namespace) -> Path:
    tool = Path(options.tool) if options.tool else \
        ROOT / options.build / "tools/sennit/sennit"
    if not tool.exists():
        sys.exit(f"bench/peers/run.py: {tool} is not there: run `make build` first")
    return tool.resolve()


def measure(options: argparse.Namespace, tool: Path):
    raws, problems = {}, []
    if not options.no_vm:
        try:
            raws["rxe"] = in_guest(options, tool)
        except (RuntimeError, OSError) as problem:
            problems.append(f"rxe, in the guest: {problem}.")
    if not options.no_host:
        raws["host"] = measure_place("host", str(tool), options.rounds, options.budget,
                                     only=options.only)
    return raws, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", metavar="FILE", help="the page; stdout if not given")
    parser.add_argument("--raw", metavar="FILE", help="also all figures as JSON")
    parser.add_argument("--build", default="build", help="build folder of the tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=300, metavar="SECONDS",
                        help="of each of the two places")
    parser.add_argument("--no-vm", action="store_true")
    parser.add_argument("--no-host", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD",
                        help="just those with this in their names, to try something")
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    tool = find_tool(options)
    busy = busy_share()
    raws, problems = measure(options, tool)
    for problem in problems:
        say(f"bench/peers/run.py: {problem}")
    if options.raw:
        Path(options.raw).write_text(json.dumps(raws, indent=1))
    text = page(raws, str(tool), ROOT, problems, busy)
    if options.out:
        Path(options.out).write_text(text)
        say(f"written: {options.out}")
    else:
        print(text, end="")
    return 0 if raws else 1


if __name__ == "__main__":
    sys.exit(main())
