#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a macro for each public function that can fail, which watches what it leaves in
snt_err_text() (text_watch.h).

usage: text_watch.py OUTPUT HEADER...
"""

import re
import sys
from pathlib import Path

FALLIBLE = re.compile(r"^SNT_API\s+(?:int|ssize_t)\s+(snt_\w+)\(", re.M)
# What is negative there is an answer, or the call may come from a signal handler.
WITHOUT_TEXT = {"snt_loop_call", "snt_loop_timeout", "snt_loop_wake"}


def main() -> None:
    output, headers = Path(sys.argv[1]), map(Path, sys.argv[2:])
    names = sorted({name for header in headers
                    for name in FALLIBLE.findall(header.read_text())} - WITHOUT_TEXT)
    lines = ["#include <sennit/sennit.h>", '#include "lib/text_watch.h"']
    lines += [f'#define {name}(...) TEXT_WATCH("{name}", {name}(__VA_ARGS__))'
              for name in names]
    text = "\n".join(lines) + "\n"
    # All tests depend on it.
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


main()
