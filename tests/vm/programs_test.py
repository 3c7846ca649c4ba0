#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""In a guest: test programs one after another, whose results are told as those of one.

A guest takes as long to boot as most of them to run.
"""

import re
import subprocess
import sys
from pathlib import Path

RESULT = re.compile(r"(ok|not ok)\b *\d*(.*)")


def main() -> None:
    count = 0
    for program in sys.argv[1:]:
        name = Path(program).name
        planned, seen = None, 0
        with subprocess.Popen([program], stdout=subprocess.PIPE, text=True,
                              errors="replace") as process:
            for line in process.stdout:
                result = RESULT.match(line)
                if line.startswith("1.."):
                    planned = int(line[3:])
                elif result:
                    count, seen = count + 1, seen + 1
                    print(result[1], f"{count}{result[2]}", flush=True)
                else:
                    print(f"# {line.rstrip()}", flush=True)
        if process.returncode or seen != planned or not seen:
            count += 1
            print(f"not ok {count} - {name}: status {process.returncode}, "
                  f"{seen} of {planned} results", flush=True)
    print(f"1..{count}")


if __name__ == "__main__":
    main()
