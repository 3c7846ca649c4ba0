# SPDX-License-Identifier: MIT
"""What a program says of its failure, among all else that it prints."""

import json
import re

LENGTH_MAX = 300
WORD = re.compile(r"[A-Za-z]{2}")
# Rulers, frames of tables, and what UCX prints of its stack when it aborts.
DECORATION = re.compile(r"\s*(=|-{3}|[+|]|\d+ +\S+\(.*\) \[0x)")
FAILURE = re.compile(r"\b(error|fatal|fail(s|ed|ure)?|unable|cannot|can't|couldn't|refused)\b",
                     re.I)
# Time, process and place in the sources, as UCX and libfabric put them before a sentence.
HEAD = re.compile(r"(\[[^]]*\] *)+(\S+\.c:\d+ *)?(UCX +[A-Z]+|Fatal:|:)? *")
# Of sennit and iperf3.
IN_JSON = re.compile(r'"(?:error|failure)":\s*("(?:[^"\\]|\\.)*")')


def tidy(line: str) -> str:
    words = " ".join(HEAD.sub("", line.strip(), count=1).split()).replace("`", "'")
    return words if len(words) <= LENGTH_MAX else words[:LENGTH_MAX] + " …"


def complaint(*outputs: str) -> str:
    """The first line that speaks of a failure, which is the nearest to its cause: what
    follows tells what else failed of it. Empty, if there is none."""
    for output in outputs:
        found = IN_JSON.search(output)
        if found:
            return tidy(json.loads(found[1]))
    for output in outputs:
        for line in output.splitlines():
            if FAILURE.search(line) and not DECORATION.match(line):
                return tidy(line)
    return ""


def last_words(*outputs: str) -> str:
    """The last line with words, of the first output that has any."""
    for output in outputs:
        lines = [line for line in output.splitlines()
                 if WORD.search(line) and not DECORATION.match(line)]
        if lines:
            return tidy(lines[-1])
    return ""


def reason(*outputs: str) -> str:
    """From what was printed, stderr first; empty, if nothing was."""
    return complaint(*outputs) or last_words(*outputs)
