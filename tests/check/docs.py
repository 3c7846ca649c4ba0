#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commands in the documentation do what they say: every block of `sh` is run.

usage: docs.py BUILD

With the programs of a build on the PATH, in an empty folder, on soft devices. What
cannot be run here, such as what installs packages, stands in a block of `console`.
Files that pages name in backticks exist.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report, files, name

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
SECONDS = 60
NAMED = re.compile(r"`((?:src|preload|nccl|tests|bench|examples|scripts|include|tools|docs|"
                   r"vqp|loop|conn|stream|dev|udp|util)/[\w./-]+\.\w+)`")
FOLDERS = ["", "src", "src/dev/soft"]


def run(block: str, build: Path) -> list:
    programs = [build / "tools/sennit", build / "examples", build / "bench"]
    environment = {**os.environ, "SENNIT_SOFT": "only", "LC_ALL": "C",
                   "PATH": ":".join(map(str, programs)) + ":" + os.environ["PATH"]}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder,
                                  env=environment, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return [f"not over after {SECONDS} s"]
    return [] if done.returncode == 0 else [
        f"exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"]


def missing(page):
    for path in NAMED.findall(page.read_text()):
        if not any((ROOT / folder / path).exists() for folder in FOLDERS):
            yield f"{name(page)}: {path}"


def main() -> None:
    report = Report()
    pages = files("*.md", "docs/**/*.md")
    for page in pages:
        for block in BLOCK.findall(page.read_text()):
            report.check(f"{name(page)}: {block.splitlines()[0]}",
                         run(block, Path(sys.argv[1])))
    report.check("files that pages name are there", [e for p in pages for e in missing(p)])
    report.end()


main()
