#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch.distributed over NCCL's own sockets, over sennit's plugin, and over NCCL's own
InfiniBand transport on soft devices: results and times.

usage: bench/nccl/collectives.py [--build FOLDER] [--net NAME,...] [--proto NAME,...]
           [--op NAME,...] [--bytes MAX] [--rounds N] [--seconds MAX] [--json] [--logs FOLDER]

For a host with a GPU, PyTorch with NCCL 2.20 or later, and nvidia-cuda-mps-control. Two ranks
share GPU 0 by MPS; see ranks.py.

Each collective is checked to the last element, before and after its time is taken. A row is
the time of one call, the median of a few passes, and the bytes of the message divided by it.
"default" is whatever protocol NCCL chooses.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import ranks

PROTOCOLS = ["default", "LL", "LL128", "Simple"]
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
PASSES = 3


#
# One rank
#

class Collective:
    """reset() sets the buffers, call() does it once, right() checks all elements after one."""

    def __init__(self, name, reset, call, right):
        self.name, self.reset, self.call, self.right = name, reset, call, right


def make_collectives(torch, dist, group, rank: int, count: int) -> list:
    base = (torch.arange(count, device="cuda") % 97).float()
    mine = base + rank
    both = torch.empty(2 * count, device="cuda")
    pair = torch.cat([mine, mine + 5])
    work = torch.empty_like(base)

    def send_recv():
        if rank:
            dist.recv(work, 0, group=group)
            dist.send(work, 0, group=group)
        else:
            dist.send(base, 1, group=group)
            dist.recv(work, 1, group=group)

    return [
        Collective("all_reduce", lambda: work.copy_(mine),
                   lambda: dist.all_reduce(work, group=group),
                   lambda: torch.equal(work, 2 * base + 1)),
        Collective("all_gather", both.zero_,
                   lambda: dist.all_gather_into_tensor(both, mine, group=group),
                   lambda: torch.equal(both, torch.cat([base, base + 1]))),
        Collective("reduce_scatter", work.zero_,
                   lambda: dist.reduce_scatter_tensor(work, pair, group=group),
                   lambda: torch.equal(work, 2 * base + 1 + 10 * rank)),
        Collective("broadcast", lambda: work.copy_(mine),
                   lambda: dist.broadcast(work, 1, group=group),
                   lambda: torch.equal(work, base + 1)),
        Collective("send_recv", work.zero_, send_recv, lambda: torch.equal(work, base)),
    ]


def is_right(torch, collective) -> bool:
    collective.reset()
    collective.call()
    torch.cuda.synchronize()
    return bool(collective.right())


def seconds_of_call(torch, collective, size: int) -> float:
    calls = max(2, min(200, (64 << 20) // size))
    passes = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        for _ in range(calls):
            collective.call()
        torch.cuda.synchronize()
        passes.append((time.perf_counter() - begin) / calls)
    return statistics.median(passes)


def set_protocol(protocol: str) -> None:
    """For communicators made from now on."""
    os.environ.pop("NCCL_PROTO", None)
    if protocol != "default":
        os.environ["NCCL_PROTO"] = protocol


def run_rank(options) -> None:
    torch, dist = ranks.connect(options.rank)
    for protocol in options.proto.split(","):
        set_protocol(protocol)
        group = dist.new_group(list(range(ranks.RANKS)))
        for size in options.sizes:
            for collective in make_collectives(torch, dist, group, options.rank,
                                               max(1, size // 4)):
                if collective.name not in options.op.split(","):
                    continue
                good = is_right(torch, collective)
                took = seconds_of_call(torch, collective, size)
                print(json.dumps({"op": collective.name, "proto": protocol, "bytes": size,
                                  "seconds": took,
                                  "right": good and is_right(torch, collective)}), flush=True)
    dist.destroy_process_group()


#
# All of them
#

def rows_of(text: str) -> list:
    return [json.loads(line[line.index('{"op"'):]) for line in text.splitlines()
            if '{"op"' in line]


def run_pair(net: str, arguments: list, options, port: int) -> list:
    """The rows of rank 0; a sentence in place of them if a rank fails."""
    pair = [ranks.Rank(number, net, options.build, port, [__file__, *arguments])
            for number in range(ranks.RANKS)]
    ended = ranks.wait(pair, options.seconds)
    texts = [rank.text() for rank in pair]
    for number, text in enumerate(texts):
        if options.logs:
            (options.logs / f"{net}-{port}-rank{number}.log").write_text(text)
    failed = [rank.number for rank in pair if not ended or rank.process.returncode]
    wanted = ranks.NETS[net]["NCCL_NET"]
    trouble = None
    if failed:
        trouble = f"ranks {failed} failed:\n{texts[failed[0]][-4000:]}"
    elif f"Using network {wanted}" not in texts[0]:
        trouble = f"NCCL did not use {wanted}"
    if trouble:
        print(f"{net}: {trouble}", file=sys.stderr)
    rows = rows_of(texts[0])
    for row, same in zip(rows, rows_of(texts[1])):
        row.update(net=net, right=row["right"] and same["right"])
    rows = [row for row in rows if "net" in row]
    return rows + ([{"net": net, "right": False}] if trouble else [])


def show(rows: list, nets: list) -> None:
    """A line for each collective, protocol and size; the nets side by side."""
    cells = {}
    for row in rows:
        if "op" in row:
            cells.setdefault((row["op"], row["proto"], row["bytes"], row["net"]), []).append(
                row["seconds"])
    print(f"{'':32}" + "".join(f"{net:>24}" for net in nets))
    for key in sorted({key[:3] for key in cells}):
        line = f"{key[0]:15} {key[1]:7} {key[2]:9}"
        for net in nets:
            times = cells.get((*key, net))
            took = statistics.median(times) if times else None
            line += f"{took * 1e6:12.1f} us{key[2] / took / 1e9:6.2f} GB/s" if took \
                else f"{'-':>24}"
        print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--net", default="socket,sennit-udp,sennit-shm,ib-udp,ib-shm")
    parser.add_argument("--proto", default=",".join(PROTOCOLS))
    parser.add_argument("--op",
                        default="all_reduce,all_gather,reduce_scatter,broadcast,send_recv")
    parser.add_argument("--bytes", type=int, default=max(SIZES))
    parser.add_argument("--rounds", type=int, default=1, help="of all nets in turn")
    parser.add_argument("--seconds", type=float, default=300, help="for one run of one net")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--logs", type=Path, help="keeps what each rank printed")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.sizes = [size for size in SIZES if size <= options.bytes]
    return options


def main() -> None:
    options = parse()
    if options.rank is not None:
        run_rank(options)
        return
    nets = options.net.split(",")
    arguments = ["--proto", options.proto, "--op", options.op, "--bytes", str(options.bytes)]
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    rows, port = [], 29500
    with ranks.Mps():
        for _ in range(options.rounds):
            for net in nets:
                port += 1
                made = run_pair(net, arguments, options, port)
                for row in made if options.json else []:
                    print(json.dumps(row), flush=True)
                rows += made
    if not options.json:
        show(rows, nets)
    wrong = [row for row in rows if not row["right"]]
    for row in wrong:
        print(f"wrong: {row}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
