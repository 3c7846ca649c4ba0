#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Library and tool without the libraries that can be left out: they build, work, and say what
is missing.

usage: optional.py C-COMPILER
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report

LEFT_OUT = ["librdmacm", "libcrypto", "libdeflate"]


def build(folder: Path, cc: str):
    """Yields why there is no tool."""
    options = [f"-D{library}=disabled" for library in LEFT_OUT]
    for command in (["meson", "setup", folder, ROOT, "--buildtype=plain", "-Dtests=false",
                     "-Dbench=false", *options],
                    ["ninja", "-C", folder, "tools/sennit/sennit"]):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "CC": cc})
        if done.returncode:
            yield done.stdout
            return


def linked(folder: Path):
    """Yields libraries that are needed though they were left out."""
    needed = subprocess.run(["readelf", "-d", folder / "libsennit.so"], check=True, text=True,
                            capture_output=True).stdout
    for library in ("librdmacm", "libcrypto", "libdeflate"):
        if library in needed:
            yield f"{library} is linked"


def run(folder: Path, *arguments: str):
    return subprocess.run([folder / "tools/sennit/sennit", *arguments], text=True,
                          capture_output=True, env={**os.environ, "SENNIT_SOFT": "only"})


def moves_bytes(folder: Path):
    done = run(folder, "perf", "--local", "--size", "4k", "--iterations", "10", "--runs", "1",
               "--warm-up", "0", "--verify")
    if done.returncode or "verified" not in done.stdout:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def refuses_secrets(folder: Path):
    secret = folder / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    done = run(folder, "ping", "--serve", "--port", "0", "--secret-file", str(secret))
    if not done.returncode or "libcrypto" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def main() -> None:
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "build"
        failed = list(build(folder, sys.argv[1]))
        report.check("library and tool build without " + ", ".join(LEFT_OUT), failed)
        if not failed:
            report.check("none of them is linked", list(linked(folder)))
            report.check("soft devices work, their connection manager included",
                         list(moves_bytes(folder)))
            report.check("a secret is refused, and the missing library named",
                         list(refuses_secrets(folder)))
    report.end()


if __name__ == "__main__":
    main()
