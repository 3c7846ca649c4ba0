#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each public header alone, as C99 and as C++11, with all warnings.

Adapters are checked where their event loop is installed.

usage: headers.py C-COMPILER C++-COMPILER
"""

import re
import subprocess
import sys

from tap import ROOT, Report, files, name

ADAPTER_LINES_MAX = 120
# Event loops' own headers need more than C99 has.
POSIX = "-D_POSIX_C_SOURCE=200809L"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wundef", "-Wshadow"]


def problems(compiler: str, language: str, standard: str, header, *options) -> list:
    source = f"#include <{header}>\n" * 2
    source += "int main(void);\nint main(void) { return 0; }\n"
    done = subprocess.run(
        [compiler, "-x", language, "-std=" + standard, *WARNINGS, *options,
         "-fsyntax-only", "-I", str(ROOT / "include"), "-"],
        input=source, capture_output=True, text=True)
    return [done.stderr] if done.returncode else []


def missing(compiler: str, header) -> list:
    """What a header includes and this host does not have."""
    included = re.findall(r"^#include <(?!sennit/)(.+)>", header.read_text(), re.M)
    return [other for other in included if problems(compiler, "c", "gnu99", other)]


def check_adapter(report: Report, c: str, cxx: str, header) -> None:
    relative = header.relative_to(ROOT / "include")
    lines = len(header.read_text().splitlines())
    report.check(f"{name(header)} has at most {ADAPTER_LINES_MAX} lines",
                 [f"{lines} lines"] if lines > ADAPTER_LINES_MAX else [])
    absent = missing(c, header)
    if absent:
        report.check(f"{name(header)} # SKIP there is no {absent[0]}", [])
        return
    report.check(f"{name(header)} alone as C99",
                 problems(c, "c", "c99", relative, POSIX))
    report.check(f"{name(header)} alone as C++11",
                 problems(cxx, "c++", "c++11", relative))


def main() -> None:
    c, cxx = sys.argv[1:3]
    report = Report()
    for header in files("include/sennit/*.h"):
        relative = header.relative_to(ROOT / "include")
        report.check(f"{name(header)} alone as C99", problems(c, "c", "c99", relative))
        report.check(f"{name(header)} alone as C++11",
                     problems(cxx, "c++", "c++11", relative))
    for header in files("include/sennit/adapters/*.h"):
        check_adapter(report, c, cxx, header)
    report.end()


main()
