#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/peers: what others print is understood, and the page tells wins, losses and gaps.

usage: peers_test.py SENNIT
"""

import sys

from kit import Tool

from tap import ROOT, Report

sys.path.insert(0, str(ROOT / "bench/peers"))

import contenders  # noqa: E402
from contenders import METRICS, NoFigure  # noqa: E402
from page import page  # noqa: E402
from trial import measure_place  # noqa: E402

LATENCY, RATE, LONG, LONGER = METRICS

# As these programs printed it.
SAMPLES = [
    (contenders.parse_perftest, LONG, 0.16, """
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      2000             1.06               0.16   \t\t   0.000303
"""),
    (contenders.parse_perftest, RATE, 21.5, """
 64         10000            0.02               0.01   \t\t   0.021500
"""),
    (contenders.parse_perftest, LATENCY, 17.84, """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 64      2000          10.90          135972.49      17.84    \t       1051.35     \t2907.00
"""),
    (contenders.parse_ucx, LONGER, 104.98 * 2**20 * 8 / 1e9,
     "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
     " 400,0.190,21066.300,9525.746,47.47,104.98,47,105\n"),
    (contenders.parse_ucx, RATE, 0.105, "400,0.190,21066.300,9525.746,47.47,104.98,47,105\n"),
    (contenders.parse_ucx, LATENCY, 0.19, "400,0.190,21066.300,9525.746,47.47,104.98,47,105\n"),
    (contenders.parse_pingpong, LATENCY, 51666.02,
     "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
     "64      20      =20      2.5k        2.07s      0.00   51666.02       0.00\n"),
    (contenders.parse_rstream, LATENCY, 5.62,
     "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n"
     "custom    64      1       20      2.5k        0.00s      0.09       5.62\n"),
    (contenders.parse_iperf3, LONG, 8.0,
     '{"end": {"sum_received": {"bits_per_second": 8e9}}}'),
]


def samples(_: Tool):
    for parse, metric, wanted, text in SAMPLES:
        is_ = parse(text, metric)
        if abs(is_ - wanted) > 1e-6 * wanted:
            yield f"{parse.__name__} {metric.name}: {is_}, not {wanted}"
        try:
            parse("error: no such device\n", metric)
            yield f"{parse.__name__} finds a figure where there is none"
        except (NoFigure, ValueError):
            pass


def sennit_itself(tool: Tool):
    """Measured for real, and alone: whoever else is there is not tried."""
    only = contenders.on_host(tool.path)[:1]
    contenders.PLACES["host"] = lambda _: only
    raw = measure_place("host", tool.path, 1, 120)
    contenders.PLACES["host"] = contenders.on_host
    for cell in raw["cells"]:
        if len(cell["values"]) != 1 or cell["values"][0] <= 0:
            yield f"{cell}"
        if "perf --local --json" not in cell["commands"][0]:
            yield f"{cell['commands']}"


def made_up() -> dict:
    """One that wins, one that loses, one that fails, one that is not there."""
    def cell(contender, metric, values, problem=""):
        return {"contender": contender, "metric": metric.name, "values": values,
                "problem": problem, "commands": [f"command of {contender}"]}

    ours, _, _, _, put, active, tcp, *_ = [c.name for c in contenders.on_host("sennit")]
    return {"kernel": "Linux 6", "missing": [["TCP (iperf3)", "iperf3"]], "cells": [
        cell(ours, LATENCY, [2.0, 1.0, 3.0]), cell(ours, LONG, [10.0]),
        cell(put, LATENCY, [0.5]), cell(put, LONG, [20.0]),
        cell(active, LATENCY, [8.0]), cell(active, LONG, [5.0]),
        cell(tcp, LATENCY, [], "it hung\nfor long"), cell(tcp, LONG, [])]}


def the_page(_: Tool):
    text = page({"host": made_up()}, "sennit", ROOT, ["rxe: no guest."], 0.1)
    for wanted in ("**Not measured:** rxe: no guest.", "0.5 · **0.25×**", "20 · **0.5×**",
                   "8 · **4×**", "| failed |", "| no time |", "not installed: TCP (iperf3) (Debian: iperf3)",
                   "is better at latency, 64 B (4×), 64 KiB (2×): its put is",
                   "no figure: for long", "2 µs [1 to 3, 3 runs]", "    command of"):
        if wanted not in text:
            yield f"{wanted!r} is not in the page"
    if "active messages** is better" in text:
        yield "one that loses is said to be better"
    if "was busy" in text or "was busy" not in page({}, "sennit", ROOT, [], 99):
        yield "a busy machine"


def main() -> None:
    report, tool = Report(), Tool(sys.argv[1])
    report.check("what others print is understood", list(samples(tool)))
    report.check("sennit is measured", list(sennit_itself(tool)))
    report.check("the page", list(the_page(tool)))
    report.end()


main()
