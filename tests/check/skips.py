#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests that cannot run on this host are counted as skipped, with the reason.

usage: skips.py SAMPLE

SAMPLE is a program of tests/lib/test.h: one test that passes, one that is skipped, one that
passes after it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report, load

PROJECT = """project('sample')
sh = find_program('sh')
test('cases', sh, args: ['-c', '''echo 'ok 1 - runs'
echo 'ok 2 - waits # SKIP there is no network'; echo 1..2'''], protocol: 'tap')
test('whole', sh, args: ['-c', 'echo "1..0 # SKIP there is no kernel"'], protocol: 'tap')
test('silent', sh, args: ['-c', 'exit 77'])
"""


def sample_differs(sample: str):
    done = subprocess.run([sample], text=True, capture_output=True,
                          env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"})
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    if done.returncode or lines != [
            "1..3", "ok 1 - passes", "ok 2 - lacks_something # SKIP no 2 of them",
            "ok 3 - passes"]:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def summary_differs(folder: Path):
    """What scripts/check.py makes of Meson's report."""
    (folder / "meson.build").write_text(PROJECT)
    for words in (["setup", str(folder / "build"), str(folder)],
                  ["test", "-C", str(folder / "build")]):
        done = subprocess.run(["meson", *words], text=True, capture_output=True)
        if done.returncode:
            yield done.stdout + done.stderr
            return
    check = load(ROOT / "scripts/check.py")
    tally = check.Tally()
    check.read_results(folder / "build", tally)
    if tally.line() != "1 passed, 0 failed, 3 skipped":
        yield tally.line()
    wanted = ["build: sample.cases: 2 - waits: there is no network",
              "build: sample: whole: there is no kernel",
              "build: sample: silent: no reason given"]
    if sorted(tally.skipped) != sorted(wanted):
        yield "\n".join(tally.skipped)


def main() -> None:
    report = Report()
    report.check("a skipped test of cmocka is good, and says why",
                 list(sample_differs(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        report.check("scripts/check.py repeats each reason", list(summary_differs(Path(folder))))
    report.end()


main()
