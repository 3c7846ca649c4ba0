#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts do on machines that lack something, with made-up tools."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tap import ROOT, Report

NEEDED = ["sh", "dirname", "grep", "id", "env"]
# Knows every package but those listed in the file `missing` beside it.
DPKG = """#!/bin/sh
eval "package=\\${$#}"
grep -qx "$package" "$(dirname "$0")/missing" && exit 1
echo installed
"""
APT_THAT_FAILS = "#!/bin/sh\nexit 100\n"
APT_THAT_NEEDS_UPDATE = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/calls"
[ "$1" != update ] || { : >"$here/updated"; exit 0; }
[ -e "$here/updated" ] || exit 100
: >"$here/missing"
"""


class Machine:
    """A PATH with just these tools."""

    def __init__(self, folder: str, missing: str, apt: str = "", dpkg: str = DPKG):
        self.path = Path(folder)
        for tool in NEEDED:
            (self.path / tool).symlink_to(shutil.which(tool))
        (self.path / "missing").write_text(missing)
        for name, text in (("apt-get", apt), ("dpkg-query", dpkg)):
            if text:
                (self.path / name).write_text(text)
                (self.path / name).chmod(0o755)
        # As root the script runs apt-get itself; for others this is what runs.
        (self.path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
        (self.path / "sudo").chmod(0o755)

    def setup(self, task: str = "build"):
        return subprocess.run([str(ROOT / "scripts/setup.sh"), task], text=True,
                              capture_output=True, env={"PATH": str(self.path)})


def all_there(folder: str):
    done = Machine(folder, "", APT_THAT_FAILS).setup()
    if done.returncode or done.stdout or done.stderr:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def installs_after_update(folder: str):
    done = Machine(folder, "meson\nlibibverbs-dev\n", APT_THAT_NEEDS_UPDATE).setup()
    calls = (Path(folder) / "calls").read_text().splitlines()
    if done.returncode:
        yield f"status {done.returncode}: {done.stderr}"
    if len(calls) != 3 or calls[1] != "update" or not calls[2].endswith(
            "meson libibverbs-dev"):
        yield f"apt-get was called as {calls}"


def cannot_install(folder: str):
    done = Machine(folder, "meson\n", APT_THAT_FAILS).setup()
    if done.returncode != 1 or "could not be installed: meson" not in done.stderr or \
            "apt-get install meson" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def some_tests_can_do_without(folder: str):
    """What the VM and foreign programs need is no condition of all other tests."""
    wanted = "qemu-system-x86\nucx-utils\n"
    done = Machine(folder, wanted, APT_THAT_FAILS).setup("check")
    if done.returncode or "some tests will be skipped" not in done.stderr or \
            "apt-get install qemu-system-x86 ucx-utils" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def not_debian(folder: str):
    done = Machine(folder, "", dpkg="").setup()
    if done.returncode != 1 or "Debian only" not in done.stderr or \
            "libibverbs-dev" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def libraries_are_found(folder: str):
    """On a plain Debian, which has no dpkg-architecture: install.py has the rest."""
    machine = Machine(folder, "")
    for name, text in (("meson", 'echo "$*" >"$(dirname "$0")/calls"'),
                       ("cc", "[ $1 = -print-multiarch ] && echo some-linux-gnu"),
                       ("other-cc", "exit 1"), ("rm", "")):
        (machine.path / name).write_text(f"#!/bin/sh\n{text}\n")
        (machine.path / name).chmod(0o755)
    for compiler, wanted in (("cc", "setup FOLDER --libdir lib/some-linux-gnu --more"),
                             ("other-cc", "setup FOLDER --more")):
        there = str(machine.path / "build")
        done = subprocess.run([str(ROOT / "scripts/configure.sh"), there, "--more"],
                              text=True, capture_output=True,
                              env={"PATH": str(machine.path), "CC": compiler})
        called = (machine.path / "calls").read_text().strip().replace(there, "FOLDER")
        if done.returncode or called != wanted:
            yield f"status {done.returncode}: meson {called}: {done.stderr}"


def wrong_task(folder: str):
    done = Machine(folder, "").setup("nothing")
    if done.returncode != 2 or "usage" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def main() -> None:
    report = Report()
    for what, case in (
            ("nothing is done where nothing is missing", all_there),
            ("what is missing is installed, by name", installs_after_update),
            ("what cannot be installed is named, with the command", cannot_install),
            ("what only some tests need may be missing, and is named",
             some_tests_can_do_without),
            ("another distribution is told what to install", not_debian),
            ("libraries go where the compiler looks for them", libraries_are_found),
            ("a wrong task is a usage error", wrong_task)):
        with tempfile.TemporaryDirectory() as folder:
            report.check(what, list(case(folder)))
    report.end()


main()
