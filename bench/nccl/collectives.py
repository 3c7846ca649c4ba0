#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch.distributed over NCCL's own sockets and over sennit's plugin: results and times.

usage: bench/nccl/collectives.py [--build FOLDER] [--net NAME,...] [--proto NAME,...]
           [--bytes MAX] [--json]

For a host with a GPU, PyTorch with NCCL 2.20 or later, and nvidia-cuda-mps-control. Two ranks
share GPU 0. NCCL takes them for two hosts, since each has an NCCL_HOSTID of its own, so that
all their traffic goes over the network. MPS runs both at the same time; without it the
figures are those of the GPU's time slices.

Each collective is checked to the last element, before and after its time is taken. A row is
the time of one call and the bytes of the message divided by it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NETS = {
    "socket": {"NCCL_NET": "Socket"},
    "sennit-udp": {"NCCL_NET": "sennit", "NCCL_NET_PLUGIN": "sennit", "SENNIT_SOFT": "only",
                   "SENNIT_SOFT_SHM": "off"},
    "sennit-shm": {"NCCL_NET": "sennit", "NCCL_NET_PLUGIN": "sennit", "SENNIT_SOFT": "only",
                   "SENNIT_SOFT_SHM": "on"},
    # The devices of this host, whatever they are.
    "sennit": {"NCCL_NET": "sennit", "NCCL_NET_PLUGIN": "sennit", "SENNIT_SOFT": "never"},
}
PROTOCOLS = ["LL", "LL128", "Simple"]
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
RANKS = 2
RUN_SECONDS = 600


#
# One rank
#

def collectives(torch, dist, rank):
    """Yields name, a function that does it once, and one that says whether it was right."""
    def make(count):
        base = (torch.arange(count, device="cuda") % 97).float()
        mine = base + rank
        both = torch.empty(2 * count, device="cuda")
        work = torch.empty_like(base)

        def all_reduce():
            work.copy_(mine)
            dist.all_reduce(work)

        def all_gather():
            dist.all_gather_into_tensor(both, mine)

        def broadcast():
            work.copy_(mine)
            dist.broadcast(work, 1)

        def send_recv():
            if rank:
                dist.recv(work, 0)
                dist.send(work, 0)
            else:
                dist.send(base, 1)
                dist.recv(work, 1)

        return [
            ("all_reduce", all_reduce, lambda: torch.equal(work, 2 * base + 1)),
            ("all_gather", all_gather,
             lambda: torch.equal(both, torch.cat([base, base + 1]))),
            ("broadcast", broadcast, lambda: torch.equal(work, base + 1)),
            ("send_recv", send_recv, lambda: torch.equal(work, base)),
        ]
    return make


def run_rank(rank: int, sizes: list) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    make = collectives(torch, dist, rank)
    for size in sizes:
        for name, call, right in make(max(1, size // 4)):
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            good = right()
            calls = max(5, min(200, (64 << 20) // size))
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            torch.cuda.synchronize()
            took = (time.perf_counter() - begin) / calls
            print(json.dumps({"op": name, "bytes": size, "seconds": took,
                              "right": bool(good and right())}), flush=True)
    dist.destroy_process_group()


#
# All of them
#

def environment(net: str, protocol: str, rank: int, build: Path, port: int) -> dict:
    path = [str((build / "nccl").resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, **NETS[net], "NCCL_PROTO": protocol, "NCCL_HOSTID": f"host{rank}",
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "LD_LIBRARY_PATH": ":".join(filter(None, path))}


def run_pair(net: str, protocol: str, sizes: list, build: Path, port: int) -> list:
    """The rows of rank 0; a sentence and an exit if a rank fails."""
    logs, ranks = [], []
    for rank in range(RANKS):
        logs.append(tempfile.TemporaryFile("w+"))
        ranks.append(subprocess.Popen(
            [sys.executable, __file__, "--rank", str(rank), "--sizes", ",".join(map(str, sizes))],
            env=environment(net, protocol, rank, build, port), stdout=logs[rank],
            stderr=subprocess.STDOUT))
    try:
        failed = [rank for rank, process in enumerate(ranks) if process.wait(RUN_SECONDS)]
    except subprocess.TimeoutExpired:
        failed = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        for process in ranks:
            process.kill()
    texts = []
    for log in logs:
        log.seek(0)
        texts.append(log.read())
    if failed:
        sys.exit(f"{net}, {protocol}: ranks {failed} failed:\n{texts[failed[0]][-4000:]}")
    wanted = NETS[net]["NCCL_NET"]
    if f"Using network {wanted}" not in texts[0]:
        sys.exit(f"{net}, {protocol}: NCCL did not use {wanted}:\n{texts[0][-4000:]}")
    rows = [json.loads(line) for line in texts[0].splitlines() if line.startswith('{"op"')]
    other = [json.loads(line) for line in texts[1].splitlines() if line.startswith('{"op"')]
    for row, same in zip(rows, other):
        row.update(net=net, proto=protocol, right=row["right"] and same["right"])
    return rows


def start_mps(folder: str) -> bool:
    os.environ.update(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    try:
        return subprocess.run(["nvidia-cuda-mps-control", "-d"]).returncode == 0
    except FileNotFoundError:
        return False


def stop_mps() -> None:
    subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True)


def show(rows: list, nets: list) -> None:
    """A line for each collective, protocol and size; the nets side by side."""
    cells = {(r["op"], r["proto"], r["bytes"], r["net"]): r for r in rows}
    print(f"{'':28}" + "".join(f"{net:>24}" for net in nets))
    for key in dict.fromkeys(key[:3] for key in cells):
        line = f"{key[0]:11} {key[1]:7} {key[2]:9}"
        for net in nets:
            row = cells.get((*key, net))
            line += f"{row['seconds'] * 1e6:12.1f} us{row['bytes'] / row['seconds'] / 1e9:6.2f} GB/s" \
                if row else f"{'-':>24}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--net", default="socket,sennit-udp,sennit-shm")
    parser.add_argument("--proto", default=",".join(PROTOCOLS))
    parser.add_argument("--bytes", type=int, default=max(SIZES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options.rank, [int(size) for size in options.sizes.split(",")])
        return
    nets, sizes = options.net.split(","), [s for s in SIZES if s <= options.bytes]
    rows, port = [], 29500
    with tempfile.TemporaryDirectory() as folder:
        mps = start_mps(folder)
        if not mps:
            print("without MPS: the ranks take turns on the GPU", file=sys.stderr)
        try:
            for protocol in options.proto.split(","):
                for net in nets:
                    port += 1
                    rows += run_pair(net, protocol, sizes, options.build, port)
        finally:
            if mps:
                stop_mps()
    if options.json:
        for row in rows:
            print(json.dumps(row))
    else:
        show(rows, nets)
    wrong = [row for row in rows if not row["right"]]
    for row in wrong:
        print(f"wrong: {row}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
