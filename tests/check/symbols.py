#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exported, mapped, declared and documented functions are one and the same set.

usage: symbols.py SHARED-LIBRARY
"""

import re
import sys

from tap import ROOT, Report, files, output

DECLARATION = re.compile(r"^SNT_API\b[^;]*?\b(snt_\w+)\(", re.M)
DOC_BLOCK = re.compile(r"/\*\*\n \* (snt_[\w, ]+) -", re.M)


def exported(library: str) -> set:
    symbols = set()
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        symbol = line.split()[-1].split("@")[0]
        if not symbol.startswith("SENNIT_"):  # the version's own name
            symbols.add(symbol)
    return symbols


def mapped() -> set:
    return set(re.findall(r"^\t(\w+);", (ROOT / "src/sennit.map").read_text(), re.M))


def in_headers(pattern) -> set:
    found = set()
    for header in files("include/sennit/*.h"):
        for match in pattern.findall(header.read_text()):
            found.update(word.strip() for word in match.split(","))
    return found


def difference(left: set, right: set, text: str) -> list:
    return [f"{symbol} {text}" for symbol in sorted(left - right)]


def main() -> None:
    report = Report()
    library, listed = exported(sys.argv[1]), mapped()
    declared, documented = in_headers(DECLARATION), in_headers(DOC_BLOCK)
    report.check("only public snt_* functions are exported",
                 [s for s in sorted(library)
                  if not re.fullmatch(r"snt_[a-z0-9][a-z0-9_]*", s)])
    report.check("all that is exported is in sennit.map, and the reverse",
                 difference(library, listed, "is exported but not mapped") +
                 difference(listed, library, "is mapped but not exported"))
    report.check("all that is exported is declared, and the reverse",
                 difference(library, declared, "is exported but in no header") +
                 difference(declared, library, "is declared but not exported"))
    report.check("all that is declared has a doc block, and the reverse",
                 difference(declared, documented, "has no doc block") +
                 difference(documented, declared, "is documented but not declared"))
    report.end()


main()
