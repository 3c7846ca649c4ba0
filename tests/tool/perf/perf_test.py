#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`sennit perf` from outside: what it measures, what it prints, what it withstands.

usage: perf_test.py SENNIT
"""

import json
import os
import pty
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import kit
from kit import Server, Tool

from tap import Report

QUICK = ("--warm-up", "0", "--runs", "2")


COUNT = 12
LANES = ((1, "spray"), (3, "spray"), (3, "dqplb"))
OPERATIONS = ("write", "write-imm", "read", "send", "fetch-add", "cmp-swap",
              "stream")


def every_operation(tool: Tool):
    """All bytes of all messages are looked at, once, or at both ends of an echo."""
    seen = set()
    for row in tool.results("--op", "all", "--test", "bw,lat", "--scheme", "all", "--verify",
                            "--size", "1,4097", "--lanes", "1,3", "--iterations",
                            str(COUNT), "--runs", "1", "--warm-up", "0"):
        name = f"{row['op']} {row['test']} {row['size']} {row['lanes']} {row['scheme']}"
        seen.add((row["op"], row["test"], row["lanes"], row["scheme"], row["size"]))
        if "failure" in row:
            yield f"{name}: {row['failure']}"
            continue
        echo = row["test"] == "lat" and row["op"] in ("write-imm", "send", "stream")
        expected = COUNT * row["size"] * (2 if echo else 1)
        if row["wrong_bytes"] or row["verified_bytes"] != expected:
            yield f"{name}: {row['verified_bytes']} verified, {row['wrong_bytes']} wrong"
        if [run["messages"] for run in row["runs"]] != [COUNT]:
            yield f"{name}: {row['runs']}"
        if ("latency_ns" in row) != (row["test"] == "lat"):
            yield f"{name}: latency_ns"
    wanted = {(op, test, *lanes, size) for op in OPERATIONS for test in ("bw", "lat")
              for lanes in LANES for size in ((8,) if "-" in op and op != "write-imm"
                                              else (1, 4097))}
    if seen != wanted:
        yield f"missing {wanted - seen}, too much {seen - wanted}"


def figures_agree(tool: Tool):
    for row in tool.results("--test", "bw,lat,rate", "--size", "64,64k", "--duration",
                            "60ms", "--runs", "3", "--warm-up", "10ms"):
        name = f"{row['test']} {row['size']}"
        rates = sorted(run["messages"] * 1e9 / run["elapsed_ns"] for run in row["runs"])
        rate = row["messages_per_second"]
        if abs(rate["median"] - rates[1]) > 1e-3 * rates[1]:
            yield f"{name}: median {rate['median']} of {rates}"
        if not rate["min"] <= rate["low"] <= rate["median"] <= rate["high"] <= rate["max"]:
            yield f"{name}: {rate}"
        ratio = row["bytes_per_second"]["median"] / rate["median"]
        if abs(ratio - row["size"]) > 1e-3 * row["size"]:
            yield f"{name}: {ratio} bytes a message"
        if any(run["elapsed_ns"] < 60e6 for run in row["runs"]):
            yield f"{name}: shorter than was asked for"
        if row["cpu"]["client"] <= 0:
            yield f"{name}: no processor time"
        yield from lanes_agree(name, row)
        if row["test"] == "lat":
            yield from percentiles_agree(name, row)


def lanes_agree(name: str, row: dict):
    data = [lane for lane in row["lane_rows"] if lane["data"]]
    sent = sum(lane["bytes"] for lane in data)
    measured = sum(run["messages"] for run in row["runs"]) * row["size"]
    if len(data) != row["lanes"] or sent != measured:  # without the warm-up
        yield f"{name}: {len(data)} lanes carried {sent} bytes of {measured}"


def percentiles_agree(name: str, row: dict):
    latency = row["latency_ns"]
    order = [latency[key] for key in ("min", "p50", "p90", "p99", "p99.9", "p99.99", "max")]
    if order != sorted(order) or order[0] <= 0:
        yield f"{name}: {latency}"
    if latency["count"] != sum(run["messages"] for run in row["runs"]):
        yield f"{name}: {latency['count']} latencies"


def lists_and_ranges(tool: Tool):
    for size, wanted in (("1,2k,100", [1, 2048, 100]), ("1-8", [1, 2, 4, 8]),
                         ("64-4k*4", [64, 256, 1024, 4096]), ("3-8", [3, 6, 8]),
                         ("10-30+10", [10, 20, 30]), ("5-5", [5])):
        rows = tool.results("--test", "bw", "--size", size, "--iterations", "1",
                            "--warm-up", "0", "--runs", "1")
        if [row["size"] for row in rows] != wanted:
            yield f"{size}: {[row['size'] for row in rows]}"
    for size in ("", ",", "1,", "x", "1-", "8-1", "0-8", "1-8*1", "1-8+0", "1-2-3",
                 "1-64k+1", "0", "99999999999999999999", "1g"):
        done = tool.run("--local", "--size", size)
        if done.returncode != 2 or done.stdout or not done.stderr:
            yield f"{size!r}: status {done.returncode}, {done.stdout}{done.stderr}"


def wrong_usage(tool: Tool):
    for options, status, phrase in (
            (["--op", "write"], 2, "give them to the client"),
            (["--local", "--op", "writ"], 2, "--op: "),
            (["--local", "host"], 2, "--local"),
            (["--local", "--lanes", "1000"], 2, "lane count 1000"),
            (["--local", "--depth", "1-4096", "--lanes", "1-128", "--size", "1-128m",
              "--op", "all"], 2, "cases"),
            (["--local", "--fragment", "100"], 2, "multiple of 64"),
            (["--local", "--fragment", "64,512m"], 2, "from 64 to"),
            (["--port", "1", "127.0.0.1"], 1, "127.0.0.1, port 1"),
            (["--local", "--report", "/nowhere/at/all.html", "-n", "1", "-s", "1", *QUICK],
             1, "/nowhere/at/all.html")):
        done = tool.run(*options)
        if done.returncode != status or phrase not in done.stderr:
            yield f"{options}: status {done.returncode}, {done.stderr}"


def refusing_server(tool: Tool):
    """Each case is refused, and the next one asked for; the sentence is shown."""
    with kit.FakeServer(lambda said: kit.frame(kit.FAILED, kit.text("no room for it"))
                        if said == kit.CASE else kit.hello()) as port:
        done = tool.run("127.0.0.1", "--port", port, "--test", "bw", "--size", "64,4k",
                        "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 1 or len(rows) != 2:
        yield f"status {done.returncode}, {done.stdout}{done.stderr}"
    if not all("no room for it" in row.get("failure", "") for row in rows):
        yield f"{rows}"


def hostile_servers(tool: Tool):
    rng = random.Random(2)
    for said in (b"", rng.randbytes(3000), kit.hello(0), kit.frame(kit.READY, bytes(4)),
                 kit.frame(kit.FAILED, kit.text("\x1b[2J")), b"SSH-2.0-OpenSSH\r\n",
                 kit.hello() + kit.frame(kit.READY, bytes(4)),
                 kit.hello() + kit.frame(kit.READY, rng.randbytes(900))):
        with kit.FakeServer(lambda _, said=said: said) as port:
            done = tool.run("127.0.0.1", "--port", port, "--test", "bw", "--size", "64")
        if done.returncode != 1 or "\x1b" in done.stderr + done.stdout:
            yield f"{said[:40]}: status {done.returncode}, {done.stderr}"


def table(tool: Tool):
    done = tool.run("--local", "--size", "64,1k", "--iterations", "20", "--verify",
                    "--lane-rows", *QUICK)
    lines = done.stdout.splitlines()
    for wanted in ("write bandwidth, 2 lanes, spray, depth 128", "write latency, 2 lanes"):
        if not any(line.startswith(wanted) for line in lines):
            yield f"no {wanted!r}"
    if sum(line.endswith("verified") for line in lines) != 4:
        yield "not four verified rows"
    if sum("lane 0" in line for line in lines) != 2:
        yield "no rows of lanes"
    if "\r" in done.stdout + done.stderr:
        yield "progress, though stderr is no terminal"
    for problem in [line for line in lines if len(line) > 100]:
        yield f"too wide: {problem}"


def progress_on_a_terminal(tool: Tool):
    master, slave = pty.openpty()
    process = subprocess.Popen([tool.path, "perf", "--local", "--test", "bw", "--size", "64",
                                "--duration", "400ms", "--runs", "1", "--warm-up", "0"],
                               stdout=subprocess.PIPE, stderr=slave, env=tool.environment)
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # the last one has closed it
        pass
    os.close(master)
    process.communicate()
    if process.returncode or b"\rwrite bandwidth, 2 lanes" not in shown:
        yield f"status {process.returncode}, {shown!r}"
    if not shown.endswith(b"\r"):
        yield f"progress is left behind: {shown[-80:]!r}"


# More than 8 timeouts of a QP by default.
STARVED_S = 2.5


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_for_ticks(pid: int, count: int) -> None:
    """Until a process has used so much processor time from now on."""
    before = cpu_ticks(pid)
    while cpu_ticks(pid) < before + count:
        time.sleep(0.001)


def a_server_without_a_processor(tool: Tool):
    """The other end of --local gets none for a while, as on a busy host."""
    client = tool.start("--local", "--test", "bw", "--size", "64,4k", "--duration", "1s",
                        "--runs", "1", "--warm-up", "0", "--json")
    client.stdout.readline()  # the first case is done, the second begins
    server = int(Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text())
    try:
        wait_for_ticks(server, 3)
        os.kill(server, signal.SIGSTOP)
        time.sleep(STARVED_S)
        os.kill(server, signal.SIGCONT)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it had no processor for the whole case, and has ended: the same
    _, errors = client.communicate()
    if client.returncode:
        yield f"status {client.returncode}: {errors}"


def own_addresses(count: int) -> list:
    """Loopback addresses that no other test takes for its own. A process id would not do:
    containers that share the network have the same ones."""
    return [f"127.{random.randrange(200, 250)}.{random.randrange(256)}.{i + 1}"
            for i in range(count)]


def shared_addresses(tool: Tool):
    """Both ends of --local get addresses of their own, by option and by environment."""
    one = ["--local", "--json", "--test", "bw", "--size", "64", "--iterations", "1", *QUICK]
    for count in (2, 3):
        addresses = own_addresses(count)
        for option, more in ((["--soft-addresses", ",".join(addresses)], {}),
                             ([], {"SENNIT_SOFT_ADDRESSES": ",".join(addresses)})):
            done = tool.run(*one, *option, env={**tool.environment, **more})
            if done.returncode or done.stderr:
                yield f"{option}: status {done.returncode}, {done.stdout}{done.stderr}"
                continue
            row = json.loads(done.stdout)
            used = [re.findall(r"127[.\d]+", row[end]["devices"])
                    for end in ("client", "server")]
            if used[0] + used[1] != addresses or len(used[1]) != count // 2:
                yield f"{addresses} became {used}"


def too_few_addresses(tool: Tool):
    """One address cannot be shared out; one that is in use, or named twice, is said once."""
    first, second = own_addresses(2)
    done = tool.run("--local", "--soft-addresses", f"{first},{second},{first}")
    if done.returncode != 2 or f"--soft-addresses names {first} twice" not in done.stderr:
        yield f"named twice: status {done.returncode}, {done.stderr}"
    done = tool.run("--local", "--soft-addresses", first)
    if done.returncode != 2 or "at least two" not in done.stderr:
        yield f"status {done.returncode}, {done.stderr}"
    for taken in (first, second):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind((taken, 4791))
            done = tool.run("--local", "--soft-addresses", f"{first},{second}")
        if done.returncode != 1 or done.stderr.count(f"4791 is taken on {taken}") != 1 or \
                "pipe" in done.stderr or "gone" in done.stderr:
            yield f"{taken} taken: status {done.returncode}, {done.stderr}"


def paths_named(tool: Tool):
    """Table, JSON and report say what carried the messages, and between which devices."""
    for setting, path in (("on", "shm"), ("off", "udp")):
        environment = {**tool.environment, "SENNIT_SOFT_SHM": setting}
        quick = ("--local", "--test", "bw", "--size", "64", "--iterations", "20", *QUICK)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.html")
            done = tool.run(*quick, "--lane-rows", "--report", str(page), env=environment)
            told = {"table": done.stdout, "report": page.read_text()}
        for where, text in told.items():
            if not re.search(rf"depth 128, by {path}\b", text):
                yield f"{setting}: the {where} does not say {path}: {text[:500]}"
            if ("SENNIT_SOFT_SHM=off" in text) != (path == "shm"):
                yield f"{setting}: the {where} says the wrong thing of shared memory"
            if not re.search(r"soft0 \(lo 127\.[\d.]+\)", text):
                yield f"{setting}: the {where} does not say where soft0 is"
        if not re.search(rf"lane 0 +soft0 +{path} ", done.stdout):
            yield f"rows of lanes: {done.stdout}"
        row = json.loads(tool.run(*quick, "--json", env=environment).stdout)
        if not all(lane["round_trip_ns"] and lane["window"] for lane in row["lane_rows"]
                   if lane["data"]) or "resends" not in row["runs"][0]["server"]["loss"]:
            yield f"{setting}: no round trips, or no losses: {row}"
        if row["path"] != path or {lane["path"] for lane in row["lane_rows"]} != {path}:
            yield f"{setting}: {row}"


def both_directions(tool: Tool):
    """With -b both ends send at once, every byte of it arrives, and figures are sums."""
    seen = set()
    for more in ((), ("--events",), ("--test", "rate", "--depth", "1,32")):
        for row in tool.results("-b", "--op", "all", "--scheme", "all", "--lanes", "1,3",
                                "--size", "1,4097", "--verify", "--iterations", "70",
                                "--runs", "2", "--warm-up", "0", *more):
            name = f"{row['op']} {row['test']} {row['size']} {row['lanes']} {row['scheme']}"
            if "failure" in row:
                yield f"{name} {more}: {row['failure']}"
                continue
            seen.add((row["op"], row["lanes"], row["scheme"]))
            if not row["bidirectional"] or row["test"] == "lat":
                yield f"{name}: {row['bidirectional']}"
            if row["wrong_bytes"] or row["verified_bytes"] != 2 * 2 * 70 * row["size"]:
                yield f"{name}: {row['verified_bytes']} verified, {row['wrong_bytes']} wrong"
            if any(run["messages"] != 70 or run["back"]["messages"] != 70
                   for run in row["runs"]):
                yield f"{name}: {row['runs']}"
    wanted = {(op, *lanes) for op in OPERATIONS for lanes in LANES}
    if seen != wanted:
        yield f"missing {wanted - seen}"


def both_directions_by_time(tool: Tool):
    """Neither waits for the other, with and without credit; the sum is shown."""
    for row in tool.results("-b", "--op", "write,send,read,stream", "--size", "4k,1m",
                            "--duration", "50ms", "--runs", "1", "--warm-up", "10ms"):
        (run,) = row["runs"]
        both = run["messages"] + run["back"]["messages"]
        longer = max(run["elapsed_ns"], run["back"]["elapsed_ns"])
        rate = row["messages_per_second"]["median"]
        if not run["messages"] or not run["back"]["messages"] or \
                abs(rate - both * 1e9 / longer) > 1e-3 * rate:
            yield f"{row['op']}: {rate} of {run}"
    done = tool.run("--local", "-b", "--size", "64", "--iterations", "10", *QUICK)
    if "write bandwidth, both directions, 2 lanes" not in done.stdout or \
            "latency" in done.stdout:
        yield done.stdout + done.stderr
    done = tool.run("--local", "-b", "--test", "lat")
    if done.returncode != 2 or "--bidirectional" not in done.stderr:
        yield f"status {done.returncode}: {done.stderr}"


def sleeping(tool: Tool):
    """Both ends sleep, and still nothing is lost."""
    for row in tool.results("--events", "--verify", "--op", "write,write-imm,send,read,stream",
                            "--size", "100", "--iterations", "200", *QUICK):
        if row["wrong_bytes"] or not row["events"]:
            yield f"{row['op']} {row['test']}"
        if row["test"] == "lat" and row["op"] == "send" and \
                row["wakeups_per_message"]["client"] == 0:
            yield "no wake-ups"


#
# The page
#

PLOTS = {"bandwidth", "latency", "rate", "percentiles", "lanes"}


def make_page(tool: Tool, path: Path) -> str:
    done = tool.run("--local", "--test", "all", "--size", "64,4k", "--lanes", "1,4",
                    "--duration", "20ms", "--runs", "1", "--warm-up", "0", "--verify",
                    "--report", str(path))
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout, "the table does not name the report"
    return path.read_text()


def page(tool: Tool):
    with tempfile.TemporaryDirectory() as folder:
        text = make_page(tool, Path(folder, "out.html"))
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    for drawing in drawings:
        try:
            xml.fromstring(drawing)
        except xml.ParseError as error:
            yield f"{error}: {drawing[:200]}"
    plots = {re.sub(r"-t$", "", name) for name in re.findall(r"<title id='(.*?)'", text)}
    if plots != PLOTS:
        yield f"plots: {plots}"
    for name in re.findall(r"aria-labelledby='(.*?)'", text):
        if not all(f"id='{part}'" in text for part in name.split()):
            yield f"nothing is called {name}"
    ids = re.findall(r"\bid='(.*?)'", text)
    if len(ids) != len(set(ids)):
        yield f"names that are not unique: {ids}"
    for wrong in ("<script", "http:", "https:", "url(", "@import", "nan", "inf "):
        if wrong in text:
            yield f"{wrong!r} in the page"
    if len(text) > 200_000:
        yield f"{len(text)} bytes"


class Plot:
    """One of the page's: what its axes say, and where its marks and bars are."""

    def __init__(self, text: str, name: str) -> None:
        drawing = re.search(rf"<svg[^>]*aria-labelledby='{name}-t.*?</svg>", text, re.S)[0]
        self.ticks = re.findall(r"<text class='m' [^>]*>(.*?)</text>", drawing)
        self.scale = re.findall(r"<text class='e' [^>]*>(.*?)</text>", drawing)
        self.axis = re.search(r"<text class='m t' x[^>]*>(.*?)</text>", drawing)[1]
        self.marks = {float(x) for x in
                      re.findall(r"class='f\d+' transform='translate\((\S+) ", drawing)}
        self.bars = [tuple(map(float, bar)) for bar in re.findall(
            r"class='b f\d+' d='M(\S+) (\S+)H\S+V(\S+)H\S+z'", drawing)]
        self.ranges = drawing.count("<path class='w")


def page_of(tool: Tool, *options: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.html")
        done = tool.run("--local", *options, "--warm-up", "0", "--report", str(path))
        assert done.returncode == 0, done.stderr
        return path.read_text()


def labels_fit(tool: Tool):
    found = page_of(tool, "--test", "lat", "--size", "64", "-n", "10000", "--runs", "1")
    for x, text in re.findall(r"<text class='m' x='([\d.]+)' y='[\d.]+'>([^<]*)<", found):
        # Ten times as many messages would have one more 9.
        if float(x) + 3.5 * (len(text) + text.endswith("9%")) > 480:
            yield f"{text} at {x} does not fit a plot of 480"
    if "99.99%" not in found:
        yield "there is no label at the right edge"


def lanes_add_up(tool: Tool):
    """One size and several lanes: a bar for each number of lanes, stacked from 0."""
    text = page_of(tool, "--size", "64k", "--lanes", "1-4", "--test", "bw,lat",
                   "--duration", "40ms", "--runs", "3")
    plot = Plot(text, "bandwidth")
    if plot.axis != "lanes" or plot.ticks != ["1", "2", "4"] or plot.scale[0] != "0":
        yield f"axes: {plot.axis} {plot.ticks} {plot.scale}"
    if len(plot.bars) != 1 + 2 + 4 or len({bar[0] for bar in plot.bars}) != 3:
        yield f"bars: {plot.bars}"
    for left in {bar[0] for bar in plot.bars}:
        parts = [bar for bar in plot.bars if bar[0] == left]
        if any(abs(low[1] - high[2]) > 0.2 for low, high in zip(parts, parts[1:])):
            yield f"not stacked: {parts}"
    if plot.ranges != 3:
        yield f"spread of {plot.ranges} bars"
    latency = Plot(text, "latency")
    if latency.axis != "lanes" or len(latency.marks) != 3:
        yield f"latency: {latency.axis} {latency.marks}"
    if Plot(text, "lanes").scale[0] != "0" or "Gb/s</text>" not in text:
        yield f"lanes over time: {Plot(text, 'lanes').scale}"


def varying(tool: Tool):
    """x is what varies; what does not is in the middle."""
    quick = ("--iterations", "20", "--runs", "2", "--test", "bw")
    for options, axis, ticks in (
            (("--size", "4k", "--depth", "1,8,64"), "depth", {"1", "8", "64"}),
            (("--size", "1m", "--fragment", "64k,256k", "--lanes", "2"), "fragment, bytes",
             {"64k", "256k"}),
            (("--size", "8", "--op", "write,read,send"), "operation",
             {"write", "read", "send"}),
            (("--size", "4k", "--lanes", "2", "--scheme", "all"), "scheme",
             {"spray", "dqplb"}),
            (("--size", "64,4k,64k", "--lanes", "1,2"), "message size, bytes", {"64", "4k"})):
        plot = Plot(page_of(tool, *quick, *options), "bandwidth")
        if plot.axis != axis or not ticks <= set(plot.ticks) or plot.scale[0] != "0":
            yield f"{options}: {plot.axis} {plot.ticks} {plot.scale}"
    (mark,) = Plot(page_of(tool, *quick[:4], "--test", "lat", "--size", "4k"),
                   "latency").marks
    if not 200 < mark < 350:
        yield f"a single mark is at {mark}"


def same_figures(tool: Tool):
    """The page's table has what the terminal's has, p90 and spread included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.html")
        done = tool.run("--local", "--size", "64,4k", "--iterations", "50", "--runs", "3",
                        "--warm-up", "0", "--report", str(path))
        text = path.read_text()
    table = re.search(r"<table><caption>All results.*?</table>", text, re.S)[0]
    heads = re.findall(r"<th>(.*?)</th>", table.partition("</thead>")[0])
    if "p90" not in heads or "spread" not in heads:
        yield f"{heads}"
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    shown = {cell.rstrip("%") for row in rows for cell in row}
    printed = [line.split() for line in done.stdout.splitlines()
               if re.match(r" +(64|4k) ", line)]
    if len(rows) != 4 or len(printed) != 4:
        yield f"{len(rows)} rows for {len(printed)} lines"
    for line in printed:
        for figure in line[1:7 if len(line) > 6 and "/" not in line[4] else 4]:
            if figure.rstrip("%") not in shown:
                yield f"{figure} of {line} is not in {rows}"


#
# The server
#

def client_works(tool: Tool, server: Server):
    done = tool.run("127.0.0.1", "--port", server.port, "--test", "bw", "--op", "send",
                    "--size", "4k", "--iterations", "50", "--verify", "--json", *QUICK)
    if done.returncode or json.loads(done.stdout)["wrong_bytes"]:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def server_goes_on(tool: Tool):
    """Clients come one after the other, and one is killed in the middle of a run."""
    with Server(tool) as server:
        yield from client_works(tool, server)
        for op in ("write", "send"):
            client = tool.start("127.0.0.1", "--port", server.port, "--test", "bw", "--op",
                                op, "--size", "64,4k", "--duration", "100ms", "--runs", "1",
                                "--warm-up", "0", "--json")
            client.stdout.readline()  # the first case is done, the second begins
            client.send_signal(signal.SIGKILL)
            client.communicate()
            yield from client_works(tool, server)


HOSTILE_CASES = {
    "no kind": dict(kind=0), "a kind too many": dict(kind=9), "no operation": dict(op=0),
    "an operation too many": dict(op=200), "a scheme too many": dict(scheme=3),
    "a balance too many": dict(balance=77), "no lanes": dict(lanes=0),
    "lanes for all": dict(lanes=2**32 - 1), "no depth": dict(depth=0),
    "a depth of billions": dict(depth=2**32 - 1), "a batch beyond it": dict(batch=17),
    "no size": dict(size=0), "all of memory": dict(size=2**63),
    "more than all": dict(size=2**64 - 1), "a mad MTU": dict(mtu=2**31),
    "odd fragments": dict(fragment=63), "mad fragments": dict(fragment=2**64 - 64),
    "an atomic of a page": dict(op=5, size=4096), "an endless timeout": dict(timeout=32),
    "latency in both directions": dict(kind=2, bidirectional=1),
}


def hostile_cases(tool: Tool):
    """Each is refused with a sentence, in one and the same session."""
    with Server(tool) as server:
        with server.dial() as connection:
            connection.sendall(kit.hello())
            if kit.answer(connection)[0] != kit.HELLO:
                yield "no hello"
            for name, values in HOSTILE_CASES.items():
                connection.sendall(kit.case(**values))
                said = kit.answer(connection)
                if not said or said[0] != kit.FAILED or len(said[1]) < 10:
                    yield f"{name}: {said}"
                    return
        yield from client_works(tool, server)


def stop_that_crosses_a_failure(tool: Tool):
    """A client that ended its run before it heard that the case failed goes on with another;
    a STOP that belongs to no case at all ends the session."""
    stop = kit.frame(kit.STOP, bytes(8))
    refused = kit.case(kind=0)
    for said, wanted in ((refused + stop + kit.case(), [kit.FAILED, kit.READY]),
                         (refused + stop + stop, [kit.FAILED, kit.FAILED]),
                         (stop, [kit.FAILED])):
        with Server(tool) as server, server.dial() as connection:
            connection.sendall(kit.hello() + said)
            heard = [kit.answer(connection)[0]]
            while len(heard) <= len(wanted) and (answer := kit.answer(connection)):
                heard.append(answer[0])
                if answer[0] == kit.READY:
                    break
        if heard != [kit.HELLO, *wanted]:
            yield f"{said}: {heard}"


def cards(rng: random.Random):
    """Answers to READY that are none."""
    for card, token in ((b"", b""), (rng.randbytes(500), rng.randbytes(60)),
                        (bytes(2000), bytes(150))):
        yield kit.frame(kit.CONNECT, struct.pack(">H", len(card)) + card +
                        struct.pack(">H", len(token)) + token + struct.pack(">H", 0))


def hostile_clients(tool: Tool):
    """Whatever they say, the next one is served; and they cost no memory."""
    rng = random.Random(1)
    greeting = kit.hello()
    says = [b"", b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(5000), greeting[:7],
            kit.frame(kit.HELLO, version=6), kit.HEADER.pack(2**32 - 1, 5, kit.HELLO),
            kit.hello(0), kit.hello(33), kit.frame(kit.RUN), greeting + kit.frame(99),
            greeting + kit.case()[:20], greeting + kit.case() + kit.frame(kit.DONE),
            greeting + kit.case() + kit.case(), greeting + kit.frame(kit.STOP, bytes(8)),
            # The most that can be asked for, and gone.
            greeting + kit.case(size=1 << 28, verify=1), greeting + kit.case(lanes=128),
            greeting + kit.case(op=kit.STREAM),
            *(greeting + kit.case() + card for card in cards(rng))]
    says += [mutated(rng, greeting + kit.case()) for _ in range(10)]
    with Server(tool) as server:
        yield from client_works(tool, server)
        before = server.memory_kib()
        for said in says:
            with server.dial() as connection:
                try:
                    connection.sendall(said)
                    connection.shutdown(kit.socket.SHUT_WR)
                    while kit.answer(connection):
                        pass
                except OSError:  # it hung up first
                    pass
        yield from client_works(tool, server)
        if server.memory_kib() > before + 100_000:
            yield f"from {before} to {server.memory_kib()} KiB"
        if server.process.poll() is not None:
            yield f"the server ended with {server.process.returncode}"


def long_run(tool: Tool):
    """A server that only looks on gives a silent client up for dead after a minute."""
    with Server(tool) as server, kit.Listener(server) as between:
        done = tool.run("127.0.0.1", "--port", between.port(), "--op", "write", "--test",
                        "bw", "--size", "64", "--duration", "3.5s", "--runs", "1",
                        "--warm-up", "0")
    if done.returncode:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"
        return
    run = between.heard[between.heard.index(kit.RUN) + 1:between.heard.index(kit.STOP)]
    if set(run) != {kit.RUNNING} or len(run) > 3:
        yield f"during the run the client said {run}"


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


TESTS = {
    "every operation, and every byte of it verified": every_operation,
    "figures agree with each other": figures_agree,
    "lists and ranges": lists_and_ranges,
    "wrong usage is said, with its status": wrong_usage,
    "a case that is refused does not end the others": refusing_server,
    "a client outlives hostile servers": hostile_servers,
    "the table, and no progress in a pipe": table,
    "progress on a terminal": progress_on_a_terminal,
    "a server that gets no processor for seconds": a_server_without_a_processor,
    "addresses are shared out between both ends": shared_addresses,
    "addresses that are too few, in use or named twice are said once": too_few_addresses,
    "figures name their path": paths_named,
    "both directions, and every byte of them verified": both_directions,
    "both directions at a time": both_directions_by_time,
    "ends that sleep": sleeping,
    "the report is well-formed and needs nothing else": page,
    "labels of a report are inside of its plots": labels_fit,
    "a report of lanes shows how they add up": lanes_add_up,
    "a report has what varies on x": varying,
    "a report has the figures of the terminal": same_figures,
    "a server serves the next client after one was killed": server_goes_on,
    "a server refuses cases that are none": hostile_cases,
    "a server goes on where a STOP has crossed a failure": stop_that_crosses_a_failure,
    "a server outlives hostile clients": hostile_clients,
    "a server that looks on hears of a long run": long_run,
}


def main() -> None:
    tool, report = Tool(sys.argv[1]), Report()
    for name, test in TESTS.items():
        if len(sys.argv) < 3 or sys.argv[2] in name:
            try:
                report.check(name, list(test(tool)))
            except AssertionError as error:
                report.check(name, [error])
    report.end()


main()
