#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README's code is that of qp.h, which is tested; links lead somewhere, examples are short."""

import re

from tap import ROOT, Report, files, first_code, name

EXAMPLE_MAX = 150
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def code_differs() -> list:
    blocks = re.findall(r"```c\n(.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    return [] if blocks[:1] == [first_code(ROOT / "include/sennit/qp.h")] else [
        "the first C block of README.md is not the code with which qp.h begins"]


def dead_links(page):
    for target, _ in LINK.findall(page.read_text()):
        if not (page.parent / target).exists():
            yield f"{name(page)}: {target}"


def long_examples():
    for example in files("examples/[0-9]*.c"):
        lines = len(example.read_text().splitlines())
        if lines > EXAMPLE_MAX:
            yield f"{name(example)}: {lines} lines; {EXAMPLE_MAX} are enough"


def main() -> None:
    report = Report()
    pages = files("*.md", "docs/**/*.md", "tests/**/*.md")
    report.check("README's code is that of qp.h", code_differs())
    report.check("links between pages lead somewhere",
                 [e for p in pages for e in dead_links(p)])
    report.check("numbered examples are short", list(long_examples()))
    report.end()


main()
