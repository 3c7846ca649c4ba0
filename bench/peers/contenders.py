# SPDX-License-Identifier: MIT
"""What is measured, by which command, and how its output is read.

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
    port: int = 0  # on which the first server listens by TCP, the others next; 0: otherwise


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
    """A sentence on why there is none."""


def row_of(text: str, pattern: str) -> List[str]:
    """The words of a table's row; ValueError, if there is none."""
    found = re.search(pattern, text, re.M)
    if not found:
        raise ValueError("no such row")
    return found[0].split()


def messages(size: int, scale: int) -> int:
    """So many that a run takes about as long for all sizes."""
    return max(scale * {64: 100, 65536: 12, 1048576: 1}[size], 20)


#
# sennit
#

def parse_sennit(text: str, metric: Metric) -> float:
    row = json.loads(text.splitlines()[-1])
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
    row = row_of(text, rf"^ *{metric.size} +\d+ +.*$")
    if metric.name.startswith("lat"):
        return float(row[4])  # t_typical
    if metric.name.startswith("rate"):
        return float(row[4]) * 1e3
    return float(row[3])


def perftest(name: str, devices: List[str], host: str, *more: str,
             why: str = "") -> Contender:
    def make(metric: Metric, port: int) -> Optional[Trial]:
        latency = metric.name.startswith("lat")
        if latency and (len(devices) > 1 or more):
            return None
        program = "ib_write_lat" if latency else "ib_write_bw"
        # Several do not begin at once: of four seconds those in the middle count, in which
        # all are under way.
        amount = ["-D", "4", "-f", "1"] if len(devices) > 1 else \
            ["-n", str(messages(metric.size, 20 if latency else 100))]
        ends = [[program, "-d", device, "-x", "1", "-F", "-s", str(metric.size), *amount, "-p",
                 str(port + i), *([] if latency else ["--report_gbits", *more])]
                for i, device in enumerate(devices)]
        return Trial([[*end, host] for end in ends], parse_perftest, ends, port=port)
    return Contender(name, "perftest", "ib_write_bw", make, why)


#
# UCX
#

def parse_ucx(text: str, metric: Metric) -> float:
    # iterations, percentile, average and overall latency in us, bandwidths in MB/s
    # (average, overall), message rates (the same). An average is of the last second, in
    # which there may have been nothing.
    row = row_of(text, r"^ *\d+(,([\d.]+|-?inf|-?nan)){7} *$")[0].split(",")
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
    row = row_of(text, r"^\d+[kmKM]? +.*\d\.\d+ *$")
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
    row = row_of(text, r"^\S+ +\S+ +\S+ +\S+ +\S+ +[\d.]+s +[\d.]+ +[\d.]+ *$")
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
ONE_QP = "one QP, on which whatever announces bytes follows them without waiting"
UNNOTICED = "one QP; nothing is announced, ordered or reported to the receiver"
SYSTEM_CALLS = ("in an emulated guest a system call that copies is cheap beside rxe's work for "
                "each packet")


def on_rxe(tool: str) -> List[Contender]:
    """In the guest: two rxe devices, each of which reaches itself."""
    host = "192.168.77.1"
    # "rc" is rc_verbs with ud_verbs for setting connections up. Before 1.19 UCX asks a
    # datagram's completion for its IP version, in bits of the service level where mlx5 has it.
    # rxe leaves them 0, so that UCX looks for IPv6, finds a foreign GID and drops everything:
    # after 30 s "UD endpoint: unhandled timeout error". Without the check all is well.
    rxe = dict(UCX_IB_GID_INDEX="1", UCX_UD_VERBS_ETH_DGID_CHECK="n", UCX_TLS="rc")
    # Puts take one rail whatever is set: rxe1 sends no packet (1.14 has
    # UCX_MAX_RMA_RAILS). Large messages take both.
    two = dict(UCX_NET_DEVICES="rxe0:1,rxe1:1", UCX_MAX_RNDV_RAILS="2",
               UCX_MAX_EAGER_RAILS="2")
    return [
        sennit("sennit, 4 lanes on 2 devices", tool, 4),
        sennit("sennit, 1 lane on 1 device", tool, 1, SENNIT_DEVICES="rxe0"),
        sennit("sennit, a stream over 4 lanes", tool, 4, op="stream"),
        perftest("perftest, 1 QP", ["rxe0"], host,
                 why="it writes to memory that its peer watches, without a completion "
                     "there: no immediate, no receive"),
        perftest("perftest, 4 QPs", ["rxe0"], host, "-q", "4",
                 why="each QP is for itself: messages are neither cut nor put in order"),
        # By /proc/softirqs rxe's tasklets run where the WR was posted.
        perftest("perftest, one on each device", ["rxe0", "rxe1"], host,
                 why="two programs that know nothing of each other. rxe works on the CPU that "
                     "posts, so that they have two; one that posts to both devices, as "
                     "sennit and UCX with two rails do, has one"),
        uct("UCX's rc_verbs alone (UCT)", host, "rxe0:1", 40,
            why=UNNOTICED),
        ucx("UCX, 1 rail, put", host, 40, UCX_NET_DEVICES="rxe0:1", why=UNNOTICED, **rxe),
        ucx("UCX, 1 rail, active messages", host, 40, "am", UCX_NET_DEVICES="rxe0:1",
            why=ONE_QP, **rxe),
        ucx("UCX, 2 rails, active messages", host, 40, "am",
            why="only the bytes of large messages go over both; all else goes over one QP, "
                "in its order", **two, **rxe),
        libfabric("libfabric, verbs", "verbs", host, 20, "msg", why=ONE_QP),
        rstream("rsocket", host, False, 40, why=ONE_QP),
        ucx("UCX, TCP", host, 40, UCX_TLS="tcp", UCX_NET_DEVICES="d0", why=SYSTEM_CALLS),
        rstream("TCP (rstream -T s)", host, True, 40, why=SYSTEM_CALLS),
        iperf3("TCP (iperf3)", host, why=SYSTEM_CALLS),
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
