#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each public header alone, as C99 and as C++11, with all warnings.

usage: headers.py C-COMPILER C++-COMPILER
"""

import subprocess
import sys

from tap import ROOT, Report, files, name

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wundef", "-Wshadow"]


def problems(compiler: str, language: str, standard: str, header) -> list:
    source = f"#include <{header.relative_to(ROOT / 'include')}>\n" * 2
    source += "int main(void);\nint main(void) { return 0; }\n"
    done = subprocess.run(
        [compiler, "-x", language, "-std=" + standard, *WARNINGS, "-fsyntax-only",
         "-I", str(ROOT / "include"), "-"],
        input=source, capture_output=True, text=True)
    return [done.stderr] if done.returncode else []


def main() -> None:
    c, cxx = sys.argv[1:3]
    report = Report()
    for header in files("include/sennit/*.h"):
        report.check(f"{name(header)} alone as C99", problems(c, "c", "c99", header))
        report.check(f"{name(header)} alone as C++11",
                     problems(cxx, "c++", "c++11", header))
    report.end()


main()
