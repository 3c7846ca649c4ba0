#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A static function's name says in a backtrace which function it is.

No two files define a static function of the same name, and no name is one word alone:
find_lane_with_room, not find.
"""

import re
from collections import defaultdict

from tap import Report, files, name

# Within each of these a name is there once.
GROUPS = {
    "the library and the tool": ["src/**/*.[ch]", "tools/**/*.[ch]", "preload/*.[ch]"],
    "the plugin for NCCL": ["nccl/*.[ch]"],
    "benchmarks": ["bench/**/*.[ch]"],
    "what tests share": ["tests/lib/**/*.c"],
}

# The name before the parameters; attributes have parentheses as well.
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
FUNCTION = re.compile(r"\bstatic\b[^(;={]*?\b(\w+)\s*\(")


def definitions(path):
    """Kernel style: a function's brace stands in the first column."""
    lines = path.read_text(errors="replace").split("\n")
    for number, line in enumerate(lines):
        if line != "{":
            continue
        begin = number
        while begin and lines[begin - 1] and not lines[begin - 1].startswith((" *", "/*", "#")) \
                and not lines[begin - 1].endswith((";", "}")):
            begin -= 1
        found = FUNCTION.search(ATTRIBUTE.sub("", " ".join(lines[begin:number])))
        if found:
            yield found[1], number


def main() -> None:
    report = Report()
    for group, patterns in GROUPS.items():
        places = defaultdict(dict)
        for path in files(*patterns):
            for function, number in definitions(path):
                places[function][name(path)] = f"{name(path)}:{number}"
        report.check(f"{group}: no two files define a static function of the same name",
                     [f"{function}: {', '.join(where.values())}"
                      for function, where in places.items() if len(where) > 1])
        report.check(f"{group}: no static function is called by one word alone",
                     [f"{function}: {', '.join(where.values())}"
                      for function, where in places.items() if "_" not in function])
    report.end()


main()
