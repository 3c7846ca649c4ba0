# SPDX-License-Identifier: MIT
"""Two ranks of torch.distributed that share GPU 0, and what they run with.

NCCL takes the ranks for two hosts, since each has an NCCL_HOSTID of its own, so that all
their traffic goes over the network.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS = 2

PLUGIN = {"NCCL_NET": "sennit", "NCCL_NET_PLUGIN": "sennit", "NCCL_IB_DISABLE": "1"}
# NCCL's own InfiniBand transport, by the preload library.
# NCCL 2.28.7 to 2.28.9 crash with all devices but Mellanox's unless GIN is off (its pull request
# 1881).
STOCK = {"NCCL_NET": "IB", "NCCL_NET_PLUGIN": "none", "NCCL_IB_HCA": "soft",
         "NCCL_GIN_TYPE": "0"}
SOFT_UDP = {"SENNIT_SOFT": "only", "SENNIT_SOFT_SHM": "off"}
SOFT_SHM = {"SENNIT_SOFT": "only", "SENNIT_SOFT_SHM": "on"}
NETS = {
    "socket": {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1"},
    "sennit-udp": PLUGIN | SOFT_UDP,
    "sennit-shm": PLUGIN | SOFT_SHM,
    "ib-udp": STOCK | SOFT_UDP,
    "ib-shm": STOCK | SOFT_SHM,
    # The devices of this host, whatever they are.
    "sennit": PLUGIN | {"SENNIT_SOFT": "never"},
}


class Rank:
    """A process that runs `python3 PROGRAM ARGUMENTS --rank N`; its output goes to a file."""

    def __init__(self, number: int, net: str, build: Path, port: int, program: list) -> None:
        by_preload = NETS[net]["NCCL_NET"] == "IB"
        starter = [build / "tools/sennit/sennit", "run", "--"] if by_preload else []
        self.net, self.number = net, number
        self.ended = self.warned = None  # when it did, by time.monotonic()
        self.log = tempfile.TemporaryFile()
        self.looked_at = 0
        self.process = subprocess.Popen(
            [*map(str, starter), sys.executable, *map(str, program), "--rank", str(number)],
            env=self.environment(build, port), stdout=self.log, stderr=subprocess.STDOUT)

    def environment(self, build: Path, port: int) -> dict:
        path = [str((build / "nccl").resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
        return {**os.environ, **NETS[self.net], "NCCL_HOSTID": f"host{self.number}",
                "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "LD_LIBRARY_PATH": ":".join(filter(None, path))}

    # The process writes to the same file: pread() does not move the position that they share.

    def text(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode(errors="replace")

    def look(self) -> None:
        now = time.monotonic()
        more = os.pread(self.log.fileno(), 1 << 24, self.looked_at)
        # Whole lines, so that none is overlooked.
        whole = more[:more.rfind(b"\n") + 1]
        self.looked_at += len(whole)
        if self.warned is None and b"NCCL WARN" in whole:
            self.warned = now
        if self.ended is None and self.process.poll() is not None:
            self.ended = now

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait(ranks: list, seconds: float, done=None) -> bool:
    """Until all ranks have ended, or done() says so; kills what still runs then. False: too late."""
    limit = time.monotonic() + seconds
    done = done or (lambda: all(rank.ended is not None for rank in ranks))
    try:
        while not done() and time.monotonic() < limit:
            for rank in ranks:
                rank.look()
            time.sleep(0.01)
        return done()
    finally:
        for rank in ranks:
            rank.end()


def connect(rank: int):
    """In a rank: the modules torch and torch.distributed, with all ranks known to each other."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    return torch, dist


class Mps:
    """Runs kernels of both ranks at the same time. Without it the GPU gives them time slices."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        os.environ.update(CUDA_MPS_PIPE_DIRECTORY=self.folder.name,
                          CUDA_MPS_LOG_DIRECTORY=self.folder.name)
        try:
            self.runs = not subprocess.run(["nvidia-cuda-mps-control", "-d"]).returncode
        except FileNotFoundError:
            self.runs = False
        if not self.runs:
            print("without MPS: the ranks take turns on the GPU", file=sys.stderr)
        return self

    def __exit__(self, *_):
        if self.runs:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True)
        self.folder.cleanup()
