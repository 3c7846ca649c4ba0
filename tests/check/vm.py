#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the VM tier does where something is missing, or slow; no guest is started."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report, load

PREPARE, RUN = ROOT / "tests/vm/prepare.py", ROOT / "tests/vm/run.py"


def run(*command, **environment: str):
    return subprocess.run([*map(str, command)], text=True, capture_output=True,
                          env={**os.environ, **environment})


def finds_tools_of_root(folder: Path):
    """An ordinary user's PATH has no /sbin, where tc is."""
    del folder
    module = load(RUN)
    os.environ["PATH"], before = "/usr/bin:/bin", os.environ["PATH"]
    passed = module.passed_environment(module.parse_options(["true"]))
    os.environ["PATH"] = before
    if passed["PATH"] != "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin":
        yield passed["PATH"]


def waits_as_long_as_the_check(folder: Path):
    """Deadlines of the run, of init and of scripts in the guest are multiplied."""
    del folder
    module = load(RUN)
    os.environ[module.MULTIPLIER] = "3"
    passed = module.passed_environment(module.parse_options(["true"]))
    if module.multiplier() != 3 or passed[module.MULTIPLIER] != "3":
        yield str(passed)
    del os.environ[module.MULTIPLIER]
    if module.multiplier() != 1:
        yield "without it deadlines are not as they are"
    init = (ROOT / "tests/vm/init.sh").read_text()
    if "* ${multiplier:-1}" not in init or "multiplier={multiplier()}" not in RUN.read_text():
        yield "init does not wait for longer"
    for script in sorted(ROOT.glob("tests/vm/*_test.sh")):
        for line in script.read_text().splitlines():
            if re.search(r"(?<!-)timeout [\d\"]|\$\(seq \d", line):
                yield f"{script.name}: {line.strip()}"


def needs_no_home(folder: Path):
    """A home that cannot be written to: the checkout has a place for the image."""
    module = load(PREPARE)
    home = folder / "a file"
    home.write_text("")
    os.environ.pop("SNT_CACHE", None)
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    folders = module.cache_folders()
    writable = [place for place in folders if module.is_writable(place.parent)]
    if writable != [ROOT / "build-vm"]:
        yield str(folders)
    del os.environ["XDG_CACHE_HOME"]


def says_what_is_missing(folder: Path):
    for command, environment, status, wanted in (
            ([RUN, "--check"], {"PATH": str(folder)}, 125,
             "qemu-system-x86_64 is not installed (Debian: qemu-system-x86)"),
            ([PREPARE, "--find"], {"SNT_CACHE": str(folder)}, 1, "run tests/vm/prepare.py")):
        done = run(sys.executable, *command, **environment)
        if done.returncode != status or wanted not in done.stderr:
            yield f"status {done.returncode}: {done.stderr}"


def does_not_stop_others(folder: Path):
    """scripts/check.py: one line for all tests in a VM, with the reason."""
    (folder / "in the way").write_text("")
    os.environ["SNT_CACHE"] = str(folder / "in the way")
    check = load(ROOT / "scripts/check.py")
    tally = check.Tally()
    suites = check.without_vm(["unit", "vm", "vm-long"], tally)
    if suites != ["unit"] or len(tally.skipped) != 1 or \
            "no folder for the guest's kernel can be written to" not in tally.skipped[0]:
        yield f"{suites}, {tally.skipped}"
    del os.environ["SNT_CACHE"]


def main() -> None:
    report = Report()
    for what, case in (
            ("commands in a guest find the tools of root", finds_tools_of_root),
            ("deadlines follow the check's timeout multiplier", waits_as_long_as_the_check),
            ("a read-only home is no obstacle", needs_no_home),
            ("what is missing is named", says_what_is_missing),
            ("without a VM all other tests run", does_not_stop_others)):
        with tempfile.TemporaryDirectory() as folder:
            report.check(what, list(case(Path(folder))))
    report.end()


main()
