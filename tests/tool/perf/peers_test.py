#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/peers: what others print is understood, figures and failures, and the page tells
wins, losses and gaps.

usage: peers_test.py SENNIT
"""

import os
import sys
import tempfile

from kit import Tool

from tap import ROOT, Report

sys.path.insert(0, str(ROOT / "bench/peers"))

import contenders  # noqa: E402
import trial  # noqa: E402
from contenders import METRICS, Contender, Trial  # noqa: E402
from page import page  # noqa: E402
from reason import reason  # noqa: E402
from trial import Cell, measure_place  # noqa: E402

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
    (contenders.parse_ucx, LONGER, 12.34 * 2**20 * 8 / 1e9,
     "  40,2.000,inf,81063.449,0.00,12.34,0,12\n"),
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
        except ValueError:
            pass


# As these programs failed: stderr, stdout, and what they meant.
FAILURES = [
    ("", """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
[vm0:172  :0:172]       ud_ep.c:276  Fatal: UD endpoint 0x563b to <no debug data>: unhandled timeout error
==== backtrace (tid:    172) ====
 0  /lib/x86_64-linux-gnu/libucs.so.0(ucs_handle_error+0x2dc) [0x7f68c6375e9c]
 1  /lib/x86_64-linux-gnu/libucs.so.0(ucs_fatal_error_message+0xb6) [0x7f68c6373b06]
14  ucx_perftest(+0x51f1) [0x563b3eded1f1]
=================================
""", "UD endpoint 0x563b to <no debug data>: unhandled timeout error"),
    ("", """[vm0:172  :0:172] Caught signal 11 (Segmentation fault: invalid permissions)
==== backtrace (tid:    172) ====
 0  /lib/x86_64-linux-gnu/libucs.so.0(ucs_handle_error+0x2dc) [0x7f68c6375e9c]
=================================
""", "Caught signal 11 (Segmentation fault: invalid permissions)"),
    ("", """+---------------------+
| API: protocol layer |
+---------------------+
[1794777389.776213] [vm0:194  :0]          select.c:549  UCX  ERROR   no auxiliary transport to <no debug data>: Unsupported operation
[1794777389.778725] [vm0:194  :0]         libperf.c:1637 UCX  ERROR Failed to setup endpoints: Destination is unreachable
[1794777389.779045] [vm0:194  :0]      ucp_worker.c:2657 UCX  WARN  worker 0x55c5: 1 pending operations were not flushed
""", "no auxiliary transport to <no debug data>: Unsupported operation"),
    (" Did not detect devices \n If device exists, check if driver is up\n"
     " Unable to find the Infiniband/RoCE device\n", "",
     "Unable to find the Infiniband/RoCE device"),
    ("[error] util/pingpong.c:408 : failed to connect: Connection refused\n", "",
     "failed to connect: Connection refused"),
    ("rpoll: Operation now in progress\n",
     "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n",
     "rpoll: Operation now in progress"),
    ("", '{\n\t"end":\t{\n\t},\n'
     '\t"error":\t"unable to connect to server: Connection refused"\n}\n',
     "unable to connect to server: Connection refused"),
    ("sennit perf: warning: this host has no RDMA device; using 2 soft devices\n",
     '{"status":1,"error":"no devices: \\"x\\" matches no device","next":"`sennit info`"}\n',
     'no devices: "x" matches no device'),
    ("", "--------\n RDMA_Write BW Test\n 12  34\n--------\n", "RDMA_Write BW Test"),
    ("", "=================================\n\n", ""),
]


def failures(_: Tool):
    for errors, text, wanted in FAILURES:
        is_ = reason(errors, text)
        if is_ != wanted:
            yield f"{is_!r}, not {wanted!r}"


def scripted(*script: str) -> Cell:
    """A contender that is a shell's script, and prints its figure alone."""
    def make(*_):
        return Trial([["sh", "-c", *script]], lambda text, _: float(text))
    return Cell(Contender("scripted", "dash", "sh", make), LATENCY, 0)


def sentences(_: Tool):
    """Whatever goes wrong, the reason is one, and what the program said is quoted."""
    for script, wanted in (
            ("echo '[a] b.c:7 UCX ERROR `no` way' && echo ==== && exit 3",
             "it ended with status 3, and said `'no' way`"),
            ("exit 3", "it ended with status 3"),
            ("echo 'Fatal: gone' >&2; kill -ABRT $$",
             "it ended by SIGABRT, and said `Fatal: gone`"),
            ("echo 'bytes, us'", "it printed no figure, and said `bytes, us`"),
            ("true", "it printed no figure"),
            ("echo 0.000000", "it printed a figure of 0"),
            ("echo 2.5", "")):
        cell = scripted(script)
        cell.measure()
        if cell.problem != wanted or bool(cell.values) == bool(wanted):
            yield f"{script}: {cell.problem!r} and {cell.values}, not {wanted!r}"


def patience(_: Tool):
    """A contender that hangs is ended, and what it said by then is read."""
    before, trial.CLIENT_PATIENCE_S = trial.CLIENT_PATIENCE_S, 2
    cell = scripted("echo waiting; echo 'error: stuck'; exec sleep 600")
    cell.measure()
    trial.CLIENT_PATIENCE_S = before
    if cell.problem != "it was not done after 2 s, and said `error: stuck`":
        yield f"{cell.problem!r}"


def bad_luck(_: Tool):
    """A contender that fails once is tried again; one that fails twice, and never worked, is not."""
    with tempfile.TemporaryDirectory() as folder:
        once = scripted(f"echo >>{folder}/once; test $(wc -l <{folder}/once) -gt 1 && echo 7")
        never = scripted(f"echo >>{folder}/never; exit 1")
        for _ in range(4):
            once.measure()
            never.measure()
        with open(f"{folder}/never") as tries:
            if len(tries.readlines()) != 2:
                yield "two failures were not enough"
    if once.values != [7.0] * 3 or once.problem:
        yield f"after one failure: {once.values} {once.problem}"
    untried = Cell(never.contender, RATE, 0)
    untried.give_up_like([once, never, untried])
    untried.measure()
    if untried.problem != "it was not tried, after two failures" or untried.values:
        yield f"of one that never worked: {untried.problem!r} {untried.values}"


def sennit_itself(tool: Tool):
    """Measured for real, and alone: no other contender is tried."""
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
        cell(tcp, LATENCY, [], "it hung"), cell(tcp, RATE, [], "it hung"),
        cell(tcp, LONG, [])]}


def the_page(_: Tool):
    tcp = contenders.on_host("sennit")[6].name
    text = page({"host": made_up()}, "sennit", ROOT, ["rxe: no guest."], 0.1)
    for wanted in ("**Not measured:** rxe: no guest.", "0.5 · **0.25×**", "20 · **0.5×**",
                   "8 · **4×**", "| failed |", "| no time |",
                   "not installed: TCP (iperf3) (Debian: iperf3)",
                   "is better at latency, 64 B (4×), 64 KiB (2×): its put is",
                   f"- **{tcp}** has no figure for latency, 64 B, messages of 64 B: it hung.",
                   "no figure: it hung", "no figure: there was no time",
                   "2 µs [1 to 3, 3 runs]", "    command of"):
        if wanted not in text:
            yield f"{wanted!r} is not in the page"
    if "active messages** is better" in text:
        yield "one that loses is said to be better"
    if "was busy" in text or "was busy" not in page({}, "sennit", ROOT, [], 99):
        yield "a busy machine"


def without_programs(_: Tool):
    """The page is written where neither git nor dpkg is installed."""
    path, os.environ["PATH"] = os.environ["PATH"], "/nonexistent"
    try:
        text = page({}, "sennit", ROOT, [], 0.1)
    finally:
        os.environ["PATH"] = path
    for wanted in ("unknown", "perftest: not installed"):
        if wanted not in text:
            yield f"{wanted!r} is not in the page"


def main() -> None:
    report, tool = Report(), Tool(sys.argv[1])
    report.check("what others print is understood", list(samples(tool)))
    report.check("what others say of a failure is found", list(failures(tool)))
    report.check("every reason is a sentence", list(sentences(tool)))
    report.check("patience ends", list(patience(tool)))
    report.check("bad luck", list(bad_luck(tool)))
    report.check("sennit is measured", list(sennit_itself(tool)))
    report.check("the page", list(the_page(tool)))
    report.check("the page without git and dpkg", list(without_programs(tool)))
    report.end()


main()
