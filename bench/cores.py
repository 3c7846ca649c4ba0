#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What soft devices make of many cores: virtual QPs over 1, 2, 4, 8 devices beside as many
iperf3 pairs, in turns, as Markdown tables (docs/measured/cores.md).

All pairs are processes of their own: iperf3 before 3.16 has a single thread. A ratio is the
median of the ratios of rounds. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent
FIRST_PORT = 23000
PATIENCE_S = 20
MIB = 1 << 20

# Rows of other benchmarks that speak of the same: a program, and its rows.
OTHER_ROWS = {
    "soft": ("tcp-write-1m", "iperf3-write-1m", "memcpy-write-1m", "shm-write-1m",
             "shm-write-1m-made", "shm-latency-64b", "udp-latency-64b"),
    "stream": ("throughput-1m", "cpu"),
}


class Figure(NamedTuple):
    speed: float  # bits per second; of latencies, nanoseconds
    client: float = 0  # processors that an end used
    server: float = 0


class Failed(Exception):
    pass


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start(command: List[str], **environment: str) -> subprocess.Popen:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def output(process: subprocess.Popen, seconds: float) -> str:
    try:
        text, errors = process.communicate(timeout=seconds + PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"{process.args[0]} does not end") from None
    if process.returncode:
        raise Failed((errors or text).strip() or f"status {process.returncode}")
    return text


def await_listener(address: str, port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        wanted = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}:{port:04X}"
        any_address = f"00000000:{port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[1] in (wanted, any_address) and words[3] == "0A":
                return
        time.sleep(0.02)
    raise Failed(f"{process.args[0]} does not listen on {address}, port {port}")


class Pair(NamedTuple):
    """A server and a client: their commands, and what the client's output says."""
    server: List[str]
    client: List[str]
    address: str
    port: int
    read: Callable[[str], Figure]
    server_environment: Dict[str, str] = {}
    client_environment: Dict[str, str] = {}


def measure_pairs(pairs: List[Pair], seconds: float) -> Figure:
    """All at the same time."""
    running: List[subprocess.Popen] = []
    try:
        for pair in pairs:
            running.append(start(pair.server, **pair.server_environment))
        for pair, server in zip(pairs, running):
            await_listener(pair.address, pair.port, server)
        clients = [start(pair.client, **pair.client_environment) for pair in pairs]
        running += clients
        figures = [pair.read(output(client, seconds))
                   for pair, client in zip(pairs, clients)]
    finally:
        for process in running:
            end(process)
    return Figure(*(sum(part) for part in zip(*figures)))


#
# iperf3
#

def read_iperf(text: str) -> Figure:
    report = json.loads(text)["end"]
    use = report["cpu_utilization_percent"]
    return Figure(report["sum_received"]["bits_per_second"], use["host_total"] / 100,
                  use["remote_total"] / 100)


def iperf_pair(index: int, seconds: float) -> Pair:
    address, port = "127.0.0.1", FIRST_PORT + index
    return Pair(["iperf3", "-s", "-1", "-B", address, "-p", str(port)],
                ["iperf3", "-c", address, "-p", str(port), "-t", f"{max(seconds, 1):.0f}",
                 "-l", "1M", "-J"],
                address, port, read_iperf)


#
# sennit
#

def read_speed(text: str) -> Figure:
    runs = json.loads(text)["runs"]
    size = json.loads(text)["size"]
    elapsed = sum(run["elapsed_ns"] for run in runs)

    def share(name: str) -> float:
        return sum(run[name]["cpu_ns"] for run in runs) / \
            sum(run[name]["elapsed_ns"] for run in runs)

    return Figure(sum(run["messages"] for run in runs) * size * 8e9 / elapsed,
                  share("client"), share("server"))


def read_latency(text: str) -> Figure:
    return Figure(json.loads(text)["latency_ns"]["p50"])


def addresses(net: int, first: int, count: int) -> str:
    return ",".join(f"127.66.{net}.{first + i + 1}" for i in range(count))


def sennit_pair(tool: Path, shm: str, index: int, devices: int, options: List[str],
                read: Callable[[str], Figure]) -> Pair:
    """The server's devices are on 127.66.1.*, the client's on 127.66.2.*."""
    address, port = "127.0.0.1", FIRST_PORT + 100 + index
    return Pair([str(tool), "perf", "--bind", address, "--port", str(port)],
                [str(tool), "perf", address, "--port", str(port), "--json", "--runs", "1",
                 "--lanes", str(devices), *options],
                address, port, read,
                *({"SENNIT_SOFT": "only", "SENNIT_SOFT_SHM": shm,
                   "SENNIT_SOFT_ADDRESSES": addresses(net, index, devices)}
                  for net in (1, 2)))


def speed_options(seconds: float, size: int) -> List[str]:
    return ["--op", "write-imm", "--test", "bw", "--size", str(size), "--depth", "32",
            "--duration", f"{seconds}", "--warm-up", "0.2"]


def latency_options(seconds: float) -> List[str]:
    return ["--op", "write-imm", "--test", "lat", "--size", "64", "--duration", f"{seconds}",
            "--warm-up", "0.1"]


#
# The table
#

def contenders(tool: Path, seconds: float, size: int) -> Dict[str, Callable[[int], List[Pair]]]:
    options = speed_options(seconds, size)
    return {
        "iperf3": lambda n: [iperf_pair(i, seconds) for i in range(n)],
        "udp": lambda n: [sennit_pair(tool, "off", 0, n, options, read_speed)],
        "udp-pairs": lambda n: [sennit_pair(tool, "off", i, 1, options, read_speed)
                                for i in range(n)],
        "shm": lambda n: [sennit_pair(tool, "on", 0, n, options, read_speed)],
    }


TITLES = {
    "iperf3": "as many iperf3 pairs (TCP)",
    "udp": "virtual QP, one lane a device, UDP",
    "udp-pairs": "as many pairs of `sennit perf`, one device each, UDP",
    "shm": "virtual QP, one lane a device, shared memory",
}


class Cell:
    """One contender with one number of devices: a figure for each round, or why not."""

    def __init__(self) -> None:
        self.figures: List[Optional[Figure]] = []
        self.problem = ""

    def measure(self, pairs: List[Pair], seconds: float) -> None:
        try:
            self.figures.append(measure_pairs(pairs, seconds))
        except (Failed, OSError, ValueError, KeyError) as problem:
            self.figures.append(None)
            self.problem = str(problem) or type(problem).__name__

    def median(self, part: int = 0) -> float:
        known = [figure[part] for figure in self.figures if figure]
        return statistics.median(known) if known else 0

    def ratio(self, other: "Cell") -> float:
        known = [one.speed / two.speed for one, two in zip(self.figures, other.figures)
                 if one and two and two.speed]
        return statistics.median(known) if known else 0


Table = Dict[str, Dict[int, Cell]]


def measure_table(options: argparse.Namespace) -> Table:
    made = contenders(options.tool, options.seconds, options.size)
    chosen = [name for name in made if name in options.only]
    table = {name: {n: Cell() for n in options.devices} for name in chosen}
    for number in range(options.rounds):
        for n in options.devices:
            for name in chosen:
                say(f"round {number + 1} of {options.rounds}: {n}, {name}")
                table[name][n].measure(made[name](n), options.seconds)
    return table


def shown_cell(name: str, cell: Cell, baseline: Optional[Cell]) -> str:
    if not cell.median():
        return "—"
    text = f"{cell.median() / 1e9:.3g}"
    if baseline and name != "iperf3" and baseline.median():
        text += f" ({cell.ratio(baseline):.2f})"
    return text


def print_table(table: Table, devices: List[int]) -> None:
    print("| Gb/s (of iperf3) | " + " | ".join(str(n) for n in devices)
          + " | processors, client / server |")
    print("|---" * (len(devices) + 2) + "|")
    for name, row in table.items():
        baseline = table.get("iperf3", {})
        cells = [shown_cell(name, row[n], baseline.get(n)) for n in devices]
        last = row[devices[-1]]
        print(f"| {TITLES[name]} | " + " | ".join(cells)
              + f" | {last.median(1):.1f} / {last.median(2):.1f} |")
    for name, row in table.items():
        if name != "iperf3" and 1 in row and 4 in row and row[1].median():
            print(f"\n{TITLES[name]}: 4 / 1 = {row[4].ratio(row[1]):.2f}")
        for n, cell in row.items():
            if cell.problem:
                print(f"\n{name}, {n}: {cell.problem}")


def print_latencies(options: argparse.Namespace) -> None:
    print("\n| 64 B, half of a round trip, spinning | 1 device | 2 | 4 |\n|---|---|---|---|")
    for title, shm in (("UDP", "off"), ("shared memory", "on")):
        cells = {n: Cell() for n in (1, 2, 4)}
        for _ in range(options.rounds):
            for n, cell in cells.items():
                cell.measure([sennit_pair(options.tool, shm, 0, n, latency_options(0.3),
                                          read_latency)], 1)
        print(f"| {title} | " + " | ".join(f"{cell.median() / 1e3:.2f} us"
                                          for cell in cells.values()) + " |")
        for cell in cells.values():
            if cell.problem:
                print(f"\n{cell.problem}\n")


def print_other_rows(options: argparse.Namespace) -> None:
    print("\n| row | value | ratio |\n|---|---|---|")
    for program, rows in OTHER_ROWS.items():
        done = subprocess.run([str(options.build / "bench" / program), "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"| {program} | {done.stderr.strip()} | |")
        for row in map(json.loads, done.stdout.splitlines()):
            if row["case"] in rows:
                ratio = f"{row['ratio']:.2f} of {row['baseline']}" if "ratio" in row else ""
                print(f"| {program} {row['case']} | {row['value']:.4g} {row['unit']} | {ratio} |")


def numbers(text: str) -> List[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build",
                        help="folder of the programs")
    parser.add_argument("--tool", type=Path, help="default: that of --build")
    parser.add_argument("--devices", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(TITLES),
                        help=f"of {','.join(TITLES)}; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of a measurement")
    parser.add_argument("--size", type=int, default=MIB, help="of a message")
    parser.add_argument("--latency", action="store_true", help="also of 64 bytes")
    parser.add_argument("--rows", action="store_true", help="also rows of other benchmarks")
    options = parser.parse_args()
    options.tool = options.tool or options.build / "tools/sennit/sennit"
    table = measure_table(options)
    print(f"{len(os.sched_getaffinity(0))} processors, Linux {os.uname().release}, "
          f"messages of {options.size} bytes, median of {options.rounds} rounds\n")
    print_table(table, options.devices)
    if options.latency:
        print_latencies(options)
    if options.rows:
        print_other_rows(options)
    return any(cell.problem for row in table.values() for cell in row.values())


if __name__ == "__main__":
    sys.exit(main())
