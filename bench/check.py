#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does a benchmark run, and is what it prints with --json as promised?

usage: check.py PROGRAM
"""

import json
import subprocess
import sys


def main() -> None:
    done = subprocess.run([sys.argv[1], "--json", "--passes", "3"], check=True,
                          stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    print(f"1..{len(lines)}")
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        good = (isinstance(row["bench"], str) and isinstance(row["case"], str)
                and isinstance(row["unit"], str) and row["value"] > 0
                and row.get("ratio", 1) > 0)
        print("ok" if good else "not ok", number, "-", row["case"])
    sys.exit(0 if lines else 1)


main()
