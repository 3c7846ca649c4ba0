#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program outside of the tree builds against what `make install` puts down.

usage: install.py BUILD-FOLDER C-COMPILER
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report


def run(*command: str, **environment: str):
    return subprocess.run(command, text=True, capture_output=True,
                          env={**os.environ, **environment})


def build_hello(build: str, cc: str, root: Path):
    """Yields what goes wrong on the way to a program."""
    done = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", str(root))
    if done.returncode:
        yield done.stdout + done.stderr
        return
    (pc,) = root.glob("**/sennit.pc")
    flags = run("pkg-config", "--cflags", "--libs", "sennit",
                PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(root))
    if flags.returncode:
        yield flags.stderr
        return
    done = run(cc, "-std=c99", "-Wall", "-Werror", str(ROOT / "examples/01-hello.c"),
               "-o", str(root / "hello"), *flags.stdout.split())
    if done.returncode:
        yield done.stderr


def start_up(root: Path):
    """It lists devices, soft ones where there are no others."""
    (library,) = root.glob("**/libsennit.so")
    done = run(str(root / "hello"), LD_LIBRARY_PATH=str(library.parent))
    devices = Path("/sys/class/infiniband")
    name = "GID" if devices.is_dir() and any(devices.iterdir()) else "soft0"
    good = done.returncode == 0 and name in done.stdout
    if not good:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def main() -> None:
    build, cc = sys.argv[1:3]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        problems = list(build_hello(build, cc, Path(folder)))
        report.check("hello builds with pkg-config alone", problems)
        report.check("hello starts, with or without RDMA devices",
                     problems or list(start_up(Path(folder))))
    report.end()


main()
