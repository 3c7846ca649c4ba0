#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/internals/upstream-tests.md: tests that it names exist and are run, its tables are whole."""

import re

from tap import ROOT, Report

NAMED = re.compile(r"`(\w+_test\.c): (\w+)`")
CASE = re.compile(r"`(conformance|loop): ([\w -]+)`")
TIMES = re.compile(r" ×(\d+)$")
HEADING = re.compile(r"^## (.+) \((\d+)\)$", re.MULTILINE)
CASES = {"conformance": "tests/conformance/cases_*.c", "loop": "tests/loop/adapters/cases_*.c"}

# How many tests upstream has, by file: 486 of ibverbx, 169 of rdma-io.
UPSTREAM = {
    "IbvVirtualWrTest": 5, "IbvVirtualCqTest": 3, "IbvVirtualQpTest": 13,
    "IbverbxDistributedVirtualQpTest": 441, "DistributedVirtualQpGb200Test": 3,
    "IbverbxTest": 15, "DistributedTest": 3, "OooRqSupportTest": 3,
    "sys_tests": 8, "safe_api_tests": 11, "cm_tests": 2, "async_cq_tests": 2,
    "async_qp_tests": 6, "transport_tests": 38, "ring_transport_tests": 9,
    "read_ring_transport_tests": 5, "async_stream_tests": 41, "read_ring_busy_tests": 2,
    "read_ring_busy_pool_tests": 6, "quinn_tests": 6, "tonic_tests": 15,
    "tonic_tls_tests": 6, "tonic_h3_tests": 12,
}


def text_of(pattern: str) -> str:
    """Some names occur twice: on soft devices, and on the kernel's."""
    return "".join(path.read_text() for path in ROOT.glob(pattern))


def missing(page: str):
    for file, test in NAMED.findall(page):
        if not re.search(rf"(cmocka_unit_test|TEST)\({test}\)", text_of(f"tests/*/{file}")):
            yield f"{file} does not run {test}"
    for suite, case in CASE.findall(page):
        if f'{{ "{case}",' not in re.sub(r"\s+", " ", text_of(CASES[suite])):
            yield f"{suite} has no case {case}"


def rows(section: str):
    """The cells of a table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def count(there: str) -> int:
    times = TIMES.search(there)
    return int(times[1]) if times else 1


def row_faults(cells: list):
    there, here, asserted = cells
    named = NAMED.search(here) or CASE.search(here)
    if here.startswith("none: "):
        if asserted:
            yield f"{there}: asserts something without a test"
    elif not named:
        yield f"{there}: neither a test of ours nor a reason"
    elif not asserted:
        yield f"{there}: does not say what is asserted"


def faults(page: str):
    parts = HEADING.split(page)
    seen = {}
    for name, number, section in zip(parts[1::3], parts[2::3], parts[3::3]):
        table = list(rows(section))
        seen[name] = int(number)
        total = sum(count(cells[0]) for cells in table)
        if total != int(number):
            yield f"{name}: the rows are {total} tests, not {number}"
        if len({cells[0] for cells in table}) != len(table):
            yield f"{name}: a test has two rows"
        for cells in table:
            yield from row_faults(cells)
    for name, number in UPSTREAM.items():
        if seen.get(name) != number:
            yield f"{name}: upstream has {number} tests, the page {seen.get(name, 'none')}"


def main() -> None:
    report = Report()
    page = (ROOT / "docs/internals/upstream-tests.md").read_text()
    report.check("tests that are named exist", list(missing(page)))
    report.check("each of upstream's tests has a row, with an assertion or a reason",
                 list(faults(page)))
    report.end()


main()
