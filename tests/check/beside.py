#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A test does not mind a second run of itself on the same host, even with the same process id.

usage: beside.py PROGRAM...

Two runs of each program at once, each in a PID namespace of its own, as in two containers
that share the host's network.
"""

import os
import subprocess
import sys
from pathlib import Path

from tap import Report

ENCLOSURE = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork",
             "--kill-child"]
COPIES = 2


def start_copies(program: str) -> list:
    return [subprocess.Popen([*ENCLOSURE, program], text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"})
            for _ in range(COPIES)]


def failed(runs: list):
    """Yields the output of runs that fail."""
    for run in runs:
        output = run.communicate()[0]
        if run.returncode:
            yield f"status {run.returncode}: {output}"


def main() -> None:
    tried = subprocess.run([*ENCLOSURE, "true"], capture_output=True, text=True)
    if tried.returncode:
        print("1..0 # SKIP no PID namespace can be made:", tried.stderr.strip())
        return
    report = Report()
    started = {Path(program).name: start_copies(program) for program in sys.argv[1:]}
    for name, runs in started.items():
        report.check(f"{COPIES} runs of {name}", list(failed(runs)))
    report.end()


main()
