# SPDX-License-Identifier: MIT
"""Who is measured, by which command, and how its output is read.

A contender makes, for each metric, the commands of both ends and a function that finds
the figure in what the client prints; or None, where it has no such thing.
"""

import json
import re
import shutil
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    more: bool  # is better
    size: int   # of a message


METRICS = [
    Metric("lat-64", "latency, 64 B", "µs", False, 64),
    Metric("rate-64", "messages of 64 B", "k/s", True, 64),
    Metric("bw-64k", "64 KiB", "Gb/s", True, 65536),
    Metric("bw-1m", "1 MiB", "Gb/s", True, 1048576),
]


@dataclass
class Trial:
    """One measurement. Several clients run at once, and their figures are added."""
    clients: List[List[str]]
    parse: Callable[[str, Metric], float]
    servers: List[List[str]] = field(default_factory=list)
    environment: Dict[str, str] = field(default_factory=dict)
    port: int = 0  # on which the first server listens by TCP; 0: by other means


@dataclass
class Contender:
    name: str
    package: str  # Debian's, which has its program
    program: str
    make: Callable[[Metric, int], Optional[Trial]]
    why: str = ""  # it is faster, where it is

    def present(self) -> bool:
        return shutil.which(self.program) is not None


class NoFigure(Exception):
    """What was printed has none."""


def row_of(text: str, pattern: str) -> re.Match:
    found = re.search(pattern, text, re.M)
    if not found:
        raise NoFigure(text.strip()[-300:] or "it printed nothing")
    return found


def messages(size: int, scale: int) -> int:
    """So many that a run takes about as long for all sizes."""
    return max(scale * {64: 100, 65536: 12, 1048576: 1}[size], 20)


#
# sennit
#

def parse_sennit(text: str, metric: Metric) -> float:
    row = json.loads(text.splitlines()[-1])
    if "failure" in row or "error" in row:
        raise NoFigure(row.get("failure", row.get("error")))
    if metric.name.startswith("lat"):
        return row["latency_ns"]["p50"] / 1e3
    if metric.name.startswith("rate"):
        return row["messages_per_second"]["median"] / 1e3
    return row["bytes_per_second"]["median"] * 8 / 1e9


def sennit(name: str, tool: str, lanes: int, why: str = "", op: str = "",
           **environment: str) -> Contender:
    def make(metric: Metric, port: int) -> Trial:
        del port
        test = metric.name.split("-")[0]
        return Trial([[tool, "perf", "--local", "--json", "--test", test, "--op",
                       op or ("write-imm" if test == "lat" else "write"), "--size",
                       str(metric.size), "--lanes", str(lanes), "--depth",
                       "32" if metric.size > 65536 else "128", "--duration", "0.5", "--runs",
                       "1", "--warm-up", "0.1"]], parse_sennit,
                     environment=environment)
    return Contender(name, "sennit", tool, make, why)


#
# perftest
#

def parse_perftest(text: str, metric: Metric) -> float:
    row = row_of(text, rf"^ *{metric.size} +\d+ +.*$")[0].split()
    if metric.name.startswith("lat"):
        return float(row[4])  # t_typical
    if metric.name.startswith("rate"):
        return float(row[4]) * 1e3
    return float(row[3])


def perftest(name: str, devices: List[str], host: str, *more: str,
             why: str = "") -> Contender:
    def make(metric: Metric, port: int) -> Trial:
        latency = metric.name.startswith("lat")
        program = "ib_write_lat" if latency else "ib_write_bw"
        ends = []
        for i, device in enumerate(devices):
            ends.append([program, "-d", device, "-x", "1", "-F", "-s", str(metric.size), "-n",
                         str(messages(metric.size, 20 if latency else 100)), "-p",
                         str(port + i),
                         *([] if latency else ["--report_gbits", *more])])
        if latency and (len(devices) > 1 or more):
            return None
        return Trial([[*end, host] for end in ends], parse_perftest, ends, port=port)
    return Contender(name, "perftest", "ib_write_bw", make, why)


#
# UCX
#

def parse_ucx(text: str, metric: Metric) -> float:
    # iterations, percentile, average and overall latency in us, bandwidths in MB/s
    # (average, overall), message rates (the same)
    row = row_of(text, r"^ *\d+,[\d.,]+ *$")[0].split(",")
    if metric.name.startswith("lat"):
        return float(row[1])
    if metric.name.startswith("rate"):
        return float(row[7]) / 1e3
    return float(row[5]) * 2**20 * 8 / 1e9


def ucx(name: str, host: str, scale: int, test: str = "put", why: str = "",
        **environment: str) -> Contender:
    def make(metric: Metric, port: int) -> Trial:
        latency = metric.name.startswith("lat")
        count = messages(metric.size, scale // 2 if latency else scale)
        kind = f"ucp_{test}_{'lat' if latency else 'bw'}"
        if test == "am" and latency:
            kind = "ucp_am_lat"
        return Trial([["ucx_perftest", host, "-p", str(port), "-t", kind, "-s",
                       str(metric.size), "-n", str(count), "-w", str(max(count // 10, 1)),
                       "-f", "-v"]], parse_ucx, [["ucx_perftest", "-p", str(port)]],
                     {"UCX_WARN_UNUSED_ENV_VARS": "n", **environment}, port)
    return Contender(name, "ucx-utils", "ucx_perftest", make, why)


def uct(name: str, host: str, device: str, scale: int, why: str = "") -> Contender:
    """UCX's lower half: one transport, without protocols and rails."""
    def make(metric: Metric, port: int) -> Trial:
        latency = metric.name.startswith("lat")
        count = messages(metric.size, scale // 2 if latency else scale)
        return Trial([["ucx_perftest", host, "-p", str(port), "-t",
                       "put_lat" if latency else "put_bw", "-x", "rc_verbs", "-d", device,
                       "-D", "zcopy" if metric.size > 4096 else "bcopy", "-s",
                       str(metric.size), "-n", str(count), "-w", str(max(count // 10, 1)),
                       "-f", "-v"]], parse_ucx, [["ucx_perftest", "-p", str(port)]],
                     {"UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_IB_GID_INDEX": "1"}, port)
    return Contender(name, "ucx-utils", "ucx_perftest", make, why)


#
# libfabric: a ping-pong only
#

def parse_pingpong(text: str, metric: Metric) -> float:
    # bytes, sent, ack, total, time, MB/sec, usec/xfer, Mxfers/sec
    row = row_of(text, r"^\d+[kmKM]? +.*\d\.\d+ *$")[0].split()
    return float(row[6])


def libfabric(name: str, provider: str, host: str, scale: int, endpoint: str = "rdm",
              why: str = "") -> Contender:
    def make(metric: Metric, port: int) -> Optional[Trial]:
        if not metric.name.startswith("lat"):
            return None
        end = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I",
               str(messages(metric.size, scale)), "-S", str(metric.size)]
        return Trial([[*end, "-P", str(port), host]], parse_pingpong,
                     [[*end, "-B", str(port)]], port=port)
    return Contender(name, "libfabric-bin", "fi_pingpong", make, why)


#
# rstream: rsocket, or plain sockets with -T s
#

def parse_rstream(text: str, metric: Metric) -> float:
    # name, bytes, xfers, iterations, total, time, Gb/sec, usec/xfer
    row = row_of(text, r"^\S+ +\S+ +\S+ +\S+ +\S+ +[\d.]+s +[\d.]+ +[\d.]+ *$")[0].split()
    if metric.name.startswith("lat"):
        return float(row[7])
    if metric.name.startswith("rate"):
        return 1e3 / float(row[7])
    return float(row[6])


def rstream(name: str, host: str, sockets: bool, scale: int, why: str = "") -> Contender:
    def make(metric: Metric, port: int) -> Trial:
        count = messages(metric.size, scale)
        turns = ["-I", str(count // 2), "-C", "1"] if metric.name.startswith("lat") else \
            ["-I", "2", "-C", str(count)]
        options = ["-p", str(port), "-S", str(metric.size), *turns,
                   *(["-T", "s"] if sockets else [])]
        return Trial([["rstream", "-s", host, *options]], parse_rstream,
                     [["rstream", "-b", host, *options]], port=port if sockets else 0)
    return Contender(name, "rdmacm-utils", "rstream", make, why)


def parse_iperf3(text: str, metric: Metric) -> float:
    bits = json.loads(text)["end"]["sum_received"]["bits_per_second"]
    return bits / 8 / metric.size / 1e3 if metric.name.startswith("rate") else bits / 1e9


def iperf3(name: str, host: str, why: str = "") -> Contender:
    def make(metric: Metric, port: int) -> Optional[Trial]:
        if metric.name.startswith("lat"):
            return None
        return Trial([["iperf3", "-c", host, "-p", str(port), "-t", "1", "-l",
                       str(metric.size), "-J"]], parse_iperf3,
                     [["iperf3", "-s", "-1", "-p", str(port)]], port=port)
    return Contender(name, "iperf3", "iperf3", make, why)


#
# Places
#

COPY = ("its put is one memcpy by the sender, into memory that UCX itself has allocated; "
        "ours keeps to RDMA's rules, for memory that the program owns")


def on_rxe(tool: str) -> List[Contender]:
    """In the guest: two rxe devices, each of which reaches itself."""
    host = "192.168.77.1"
    # "rc" is rc_verbs with ud_verbs for setting connections up.
    rxe = dict(UCX_IB_GID_INDEX="1", UCX_TLS="rc")
    both = "rxe0:1,rxe1:1"
    return [
        sennit("sennit, 4 lanes on 2 devices", tool, 4),
        sennit("sennit, 1 lane on 1 device", tool, 1, SENNIT_DEVICES="rxe0"),
        sennit("sennit, a stream over 4 lanes", tool, 4, op="stream"),
        perftest("perftest, 1 QP", ["rxe0"], host,
                 why="it writes to memory that its peer watches, without a completion "
                     "there: no immediate, no receive"),
        perftest("perftest, 4 QPs", ["rxe0"], host, "-q", "4"),
        perftest("perftest, one on each device", ["rxe0", "rxe1"], host,
                 why="two programs that have nothing to do with each other: messages are "
                     "neither cut nor put in order"),
        uct("UCX's rc_verbs alone (UCT)", host, "rxe0:1", 40,
            why="nothing is announced, ordered or reported to the receiver"),
        ucx("UCX, 1 rail", host, 40, UCX_NET_DEVICES="rxe0:1", **rxe),
        ucx("UCX, 2 rails", host, 40, UCX_NET_DEVICES=both, UCX_MAX_RNDV_RAILS="2",
            UCX_MAX_EAGER_RAILS="2", **rxe),
        libfabric("libfabric, verbs", "verbs", host, 20, "msg"),
        rstream("rsocket", host, False, 40),
        ucx("UCX, TCP", host, 40, UCX_TLS="tcp", UCX_NET_DEVICES="d0"),
        rstream("TCP (rstream -T s)", host, True, 40,
                why="in an emulated guest a system call that copies is cheap beside rxe's "
                    "work for each packet"),
        iperf3("TCP (iperf3)", host, why="the same"),
    ]


def on_host(tool: str) -> List[Contender]:
    """Without RDMA: soft devices, beside what else moves bytes on a host."""
    host = "127.0.0.1"
    soft = dict(SENNIT_SOFT="only")
    return [
        sennit("sennit, soft devices, 1 lane", tool, 1, **soft),
        sennit("sennit, soft devices, 4 lanes", tool, 4, **soft),
        sennit("sennit, soft devices on UDP, 4 lanes", tool, 4, SENNIT_SOFT_SHM="off",
               **soft),
        sennit("sennit, a stream over 1 lane", tool, 1, op="stream", **soft),
        ucx("UCX, shared memory, put", host, 4000, UCX_TLS="posix,self", why=COPY),
        ucx("UCX, shared memory, active messages", host, 2000, "am", UCX_TLS="posix,self",
            why="active messages are eager: small ones go into a queue that both ends "
                "have mapped, and need no acknowledgement"),
        ucx("UCX, TCP", host, 400, UCX_TLS="tcp", UCX_NET_DEVICES="lo"),
        libfabric("libfabric, shm", "shm", host, 500,
                  why="a queue in shared memory, without acknowledgements"),
        libfabric("libfabric, tcp", "tcp", host, 200),
        rstream("TCP (rstream -T s)", host, True, 400),
        iperf3("TCP (iperf3)", host),
    ]


PLACES = {"rxe": on_rxe, "host": on_host}
