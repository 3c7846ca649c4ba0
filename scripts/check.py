#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds sennit in every configuration that matters and runs its tests there.

Ends with the names of what failed or was skipped and a line `N passed, N failed`
(`, N skipped`), and fails if anything did.
Every step is a Meson build folder and a selection of its tests; to repeat one by
hand: meson test -C FOLDER --suite SUITE NAME.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# They are slow enough without a compiler that takes its time.
SANITIZERS = ["-Db_lundef=false", "-Dbench=false", "-Doptimization=1", "-Dassertions=full"]
# A machine may be busy with something else: what is slow has not hung.
MULTIPLIER = "4"
# Many tests wait more than they compute.
AT_ONCE = 2 * (os.cpu_count() or 1)


@dataclass
class Step:
    folder: str
    why: str
    suites: list
    compiler: str = "gcc"
    options: list = field(default_factory=list)

    def build(self) -> list:
        """Of a sanitizer's folder only what its tests need, which Meson does by itself."""
        return [] if self.options else ["ninja", "-C", self.folder, "--quiet"]


STEPS = [
    Step("build", "gcc: every test", ["unit", "model", "check", "fuzz", "bench"]),
    Step("build-clang", "clang: its warnings, and what it compiles differently",
         ["unit", "model"], "clang"),
    Step("build-asan", "AddressSanitizer and UndefinedBehaviorSanitizer",
         ["unit", "model", "fuzz"], "gcc",
         ["-Db_sanitize=address,undefined", *SANITIZERS]),
    Step("build-tsan", "ThreadSanitizer, where there are threads", ["threads"],
         "gcc", ["-Db_sanitize=thread", *SANITIZERS]),
    Step("build", "the kernel's RDMA stack, in a VM", ["vm"]),
]
LONG = {"build": ["long", "vm-long"], "build-asan": ["long"]}


@dataclass
class Tally:
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)

    def line(self) -> str:
        line = f"{self.passed} passed, {len(self.failed)} failed"
        return line + (f", {len(self.skipped)} skipped" if self.skipped else "")


def skip_reason(case: xml.Element) -> str:
    """Of one case it is all that Meson keeps; of a whole test it is in the plan."""
    text = (case.findtext("system-out") or "").strip()
    plan = re.search(r"^1\.\.0 # SKIP\b(.*)", text, re.M)
    return (plan[1].strip() if plan else text) or "no reason given"


def read_results(folder: Path, tally: Tally) -> None:
    """Counts single cases, which Meson knows from the tests' TAP output."""
    report = xml.parse(folder / "meson-logs/testlog.junit.xml")
    for case in report.iter("testcase"):
        name = f"{folder.name}: {case.get('classname')}: {case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed.append(name)
        elif case.find("skipped") is not None:
            tally.skipped.append(f"{name}: {skip_reason(case)}")
        else:
            tally.passed += 1


def failed_otherwise(folder: Path) -> str:
    """Names tests that crashed or hung, though each case they told of was good."""
    tests = map(json.loads, (folder / "meson-logs/testlog.json").open())
    return ", ".join(f"{test['name']} ({test['result']}, status {test['returncode']})"
                     for test in tests if test["result"] not in ("OK", "SKIP"))


def run(*command: str, **environment: str) -> int:
    return subprocess.run(command, cwd=ROOT,
                          env={**os.environ, **environment}).returncode


def missing_for_vm() -> str:
    """Why no guest can be started; the first time its kernel is downloaded."""
    for command in (["tests/vm/prepare.py"], ["tests/vm/run.py", "--check"]):
        done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return ""


def without_vm(suites: list, tally: Tally) -> list:
    """The suites that can run: those of the VM are one that is skipped if it is missing."""
    others = [suite for suite in suites if not suite.startswith("vm")]
    if others == suites:
        return suites
    missing = missing_for_vm()
    if not missing:
        return suites
    tally.skipped.append(f"the kernel's RDMA stack, in a VM: {missing}")
    return others


def run_step(step: Step, suites: list, tally: Tally) -> None:
    folder = ROOT / step.folder
    report = folder / "meson-logs/testlog.junit.xml"
    build = step.build()
    if run("scripts/configure.sh", step.folder, *step.options, CC=step.compiler) or \
            (build and run(*build)):
        tally.failed.append(f"{step.folder}: building it")
        return
    report.unlink(missing_ok=True)
    selection = [word for suite in suites for word in ("--suite", suite)]
    status = run("meson", "test", "-C", step.folder, *(["--no-rebuild"] if build else []),
                 "--num-processes", str(AT_ONCE), "--timeout-multiplier", MULTIPLIER,
                 "--print-errorlogs", *selection, SNT_TIMEOUT_MULTIPLIER=MULTIPLIER)
    before = len(tally.failed)
    if report.exists():
        read_results(folder, tally)
    else:
        tally.failed.append(f"{step.folder}: building it")
    if status and len(tally.failed) == before:
        tally.failed.append(f"{step.folder}: {failed_otherwise(folder)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also what takes long")
    parser.add_argument("--only", metavar="SUITE", help="just one suite")
    args = parser.parse_args()
    tally, begin = Tally(), time.monotonic()
    for step in STEPS:
        suites = step.suites + (LONG.get(step.folder, []) if args.all else [])
        if args.only:
            suites = [s for s in suites if s == args.only]
        if not suites:
            continue
        print(f"\n=== {step.folder}: {step.why} "
              f"({time.monotonic() - begin:.0f} s) ===", flush=True)
        suites = without_vm(suites, tally)
        if suites:
            run_step(step, suites, tally)
    for name in tally.skipped:
        print(f"skipped: {name}")
    for name in tally.failed:
        print(f"failed: {name}")
    print(f"\nin {time.monotonic() - begin:.0f} s")
    print(tally.line(), flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
