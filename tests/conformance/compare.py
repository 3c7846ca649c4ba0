#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what the conformance program observes with the table in the manual.

usage: compare.py [--write] [--page NAME] COLUMN COMMAND...

COMMAND prints lines "case<TAB>words". COLUMN is a heading of the table in
docs/internals/conformance.md, or in another page of docs/. Prints TAP, a result for each
case; with --write the column is rewritten instead, and cases that are new get a row where
they stand in the output.
"""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "check"))
from tap import ROOT, Report  # noqa: E402

HEAD = "| case |"
NO_SUCH_ADDRESS = 77  # how the program ends without an observation


class Table:
    """The one table of a Markdown page that begins with the heading `case`."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith(HEAD))
        end = begin
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        self.before, self.after = lines[:begin], lines[end:]
        self.columns = self.cells(lines[begin])
        rows = [self.cells(line) for line in lines[begin + 2:end]]
        self.rows = {row[0]: dict(zip(self.columns, row)) for row in rows}

    @staticmethod
    def cells(line: str) -> list:
        return [cell.strip() for cell in line.strip("|").split("|")]

    def column(self, name: str) -> dict:
        return {case: row[name] for case, row in self.rows.items()}

    def replace(self, name: str, observed: dict) -> None:
        """Rows in the order of what was observed; the others' cells are kept."""
        self.rows = {case: {**self.rows.get(case, {}), "case": case, name: words}
                     for case, words in observed.items()}

    def unexplained(self) -> list:
        """Cases whose devices differ and which the text behind the table omits."""
        named = re.findall(r"`([^`]+)`", "\n".join(self.after))
        return [case for case, row in self.rows.items()
                if len({row[name] for name in self.columns[2:]}) > 1
                and not any(fnmatch(case, pattern) for pattern in named)]

    def __str__(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[row.get(name, "") for name in self.columns]
                  for row in self.rows.values()]
        table = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join(self.before + table + self.after) + "\n"


def observe(command: list):
    """What a command observed, what else it said, and how it ended."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace")
    observed, other = {}, []
    for line in done.stdout.splitlines():
        case, tab, words = line.rstrip("\r").partition("\t")
        if tab:
            observed[case] = words.strip().replace("|", "/")
        elif line.strip():
            other.append(line.rstrip())
    return observed, other, done.returncode


def compare(expected: dict, observed: dict, report: Report) -> None:
    for case, words in expected.items():
        problems = []
        if case not in observed:
            problems = ["no such case any more, or the program ended before it"]
        elif observed[case] != words:
            problems = [f"expected: {words}", f"observed: {observed[case]}"]
        report.check(case, problems)
    for case in observed.keys() - expected.keys():
        report.check(case, ["the table does not have it", f"observed: {observed[case]}"])


def with_own_loopback(command: list) -> list:
    """IPv6 has one loopback address, which is free in a network of the command's own."""
    if "::1" not in command:
        return command
    enclosure = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c",
                 'ip link set lo up && exec "$@"', "sh"]
    tried = subprocess.run([*enclosure, "true"], capture_output=True)
    return command if tried.returncode else [*enclosure, *command]


def main() -> None:
    args = sys.argv[1:]
    write = args[:1] == ["--write"]
    if write:
        args = args[1:]
    page = "internals/conformance.md"
    if args[:1] == ["--page"]:
        page, args = args[1], args[2:]
    if len(args) < 2:
        sys.exit(__doc__)
    column, command = args[0], args[1:]
    manual = ROOT / "docs" / page
    table = Table(manual.read_text())
    if column not in table.columns[1:]:
        sys.exit(f"compare.py: {page} has no column {column!r}")
    observed, other, status = observe(with_own_loopback(command))
    if status == NO_SUCH_ADDRESS:
        print("1..0 # SKIP", *other or ["this host lacks the address, or another program has it"])
        return
    if write:
        if status or not observed:
            sys.exit("\n".join([*other, f"compare.py: the command ended with {status}"]))
        table.replace(column, observed)
        manual.write_text(str(table))
        return
    report = Report()
    compare(table.column(column), observed, report)
    report.check("every difference between devices is explained", table.unexplained())
    report.check("the program ends well",
                 [*other, f"exit status {status}"] if status else [])
    report.end()


if __name__ == "__main__":
    main()
