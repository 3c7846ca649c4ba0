#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README's example is the one that is compiled, links lead somewhere, examples are short."""

import re

from tap import ROOT, Report, files, name

EXAMPLE_MAX = 150
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def example_differs() -> list:
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    compiled = (ROOT / "examples/01-hello.c").read_text()
    compiled = compiled[compiled.index("#include"):]
    return [] if blocks[:1] == [compiled] else [
        "the first C block of README.md is not examples/01-hello.c from its first "
        "#include on"]


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
    report.check("README's example is examples/01-hello.c", example_differs())
    report.check("links between pages lead somewhere",
                 [e for p in pages for e in dead_links(p)])
    report.check("numbered examples are short", list(long_examples()))
    report.end()


main()
