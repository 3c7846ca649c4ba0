#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests that pages name exist and are run: docs/internals/upstream-tests.md, docs/use/stream.md."""

import re

from tap import ROOT, Report

NAMED = re.compile(r"`(\w+_test\.c): (\w+)`")
FILE = re.compile(r"`(\w+_test\.c)`")


def text_of(file: str) -> str:
    """Some names occur twice: on soft devices, and on the kernel's."""
    return "".join(path.read_text() for path in ROOT.glob(f"tests/*/{file}"))


def missing(page: str):
    for file, test in NAMED.findall(page):
        text = text_of(file)
        if not re.search(rf"(cmocka_unit_test|TEST)\({test}\)", text):
            yield f"{file} does not run {test}"
    for file in FILE.findall(page):
        if not text_of(file):
            yield f"there is no {file}"


def main() -> None:
    report = Report()
    page = "".join((ROOT / "docs" / name).read_text()
                   for name in ("internals/upstream-tests.md", "use/stream.md"))
    report.check("tests that are named exist", list(missing(page)))
    report.check("enough of them are named",
                 [] if len(NAMED.findall(page)) > 30 else ["is the pattern right?"])
    report.end()


main()
