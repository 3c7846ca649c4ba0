#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Style is a test: format, lengths, licence lines, words that must not stay.

usage: tidy.py [CLANG-FORMAT]
"""

import re
import subprocess
import sys

from tap import Report, files, name

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 1000
COLUMNS_MAX = 100
C_FILES = ["include/**/*.h", "src/**/*.[ch]", "preload/*.[ch]", "nccl/*.[ch]", "tests/**/*.[ch]",
           "bench/**/*.[ch]", "examples/**/*.[ch]", "tools/**/*.[ch]"]
# Calls that hide a length or a failure.
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|gets|atoi|atol|alloca|system|abort|_?exit|"
                    r"v?f?printf|v?dprintf|f?puts|putchar|fwrite|perror)\s*\(")
# The one place that prints, and only if SENNIT_LOG asks for it.
PRINTER = "src/util/log.c"
# cmocka's own, which counts as a failure and has no reason.
BARE_SKIP = re.compile(r"\bskip\s*\(\s*\)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def text_of(path) -> str:
    return path.read_text(errors="replace")


def long_functions(path):
    """Kernel style: a function's braces stand in the first column."""
    begin = None
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            if number - begin - 1 > FUNCTION_LINES_MAX:
                yield f"{name(path)}:{begin}: {number - begin - 1} lines"
            begin = None


def wide_lines(path):
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if len(line.expandtabs(8)) > COLUMNS_MAX:
            yield f"{name(path)}:{number}: {len(line.expandtabs(8))} columns"


def matches(pattern, path):
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if pattern.search(line):
            yield f"{name(path)}:{number}: {line.strip()}"


def misformatted(clang_format: str, paths: list) -> list:
    done = subprocess.run([clang_format, "--dry-run", "-Werror", *map(str, paths)],
                          capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    return lines or ([done.stderr] if done.returncode else [])


def without_license(path) -> bool:
    return "SPDX-License-Identifier: MIT" not in "\n".join(
        text_of(path).splitlines()[:3])


def main() -> None:
    report = Report()
    c_files = files(*C_FILES)
    library = files("src/**/*.[ch]", "preload/*.[ch]", "nccl/*.[ch]", "include/**/*.h")
    scripts = files("scripts/*.*", "tests/**/*.py", "tests/**/*.sh", "bench/**/*.py")
    report.check("every file states its licence",
                 [name(p) for p in c_files + scripts if without_license(p)])
    report.check(f"functions have at most {FUNCTION_LINES_MAX} lines",
                 [e for p in c_files for e in long_functions(p)])
    report.check(f"files have at most {FILE_LINES_MAX} lines",
                 [name(p) for p in c_files
                  if len(text_of(p).splitlines()) > FILE_LINES_MAX])
    report.check(f"lines have at most {COLUMNS_MAX} columns",
                 [e for p in c_files for e in wide_lines(p)])
    report.check("the library neither prints, aborts nor loses lengths",
                 [e for p in library if name(p) != PRINTER for e in matches(BANNED, p)])
    report.check("tests that are skipped say why",
                 [e for p in files("tests/**/*.[ch]") for e in matches(BARE_SKIP, p)])
    report.check("nothing is marked unfinished",
                 [e for p in c_files for e in matches(UNFINISHED, p)])
    report.check("clang-format agrees", misformatted(sys.argv[1], c_files))
    report.end()


main()
