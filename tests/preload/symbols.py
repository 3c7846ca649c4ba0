#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the preload library exports, and which libraries see it.

usage: symbols.py PRELOAD-LIBRARY PROGRAM

PROGRAM is of bypass.c, and prints the devices that sennit sees.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "check"))
from tap import Report, output  # noqa: E402

# Functions that are given no object of a device, or only some that soft devices never
# hand out.
PURE = {
    "libibverbs.so.1": r"ibv_copy_.*|ibv_do(nt)?fork_range|ibv_fork_init|.*_str|.*_rate"
                       r"|ibv_is_fork_initialized|ibv_rate_.*|ibv_get_sysfs_path"
                       r"|ibv_read_sysfs_file|ibv_register_driver|ibv_import_device"
                       r"|ibv_unimport_.*",
    # Sockets of librdmacm use ids from inside, see docs/use/preload.md.
    "librdmacm.so.1": r"rdma_event_str|rdma_freeaddrinfo|r(?!dma)[a-z]+",
}
FILES = {"__readlink_chk", "__realpath_chk", "__xstat", "__xstat64", "access", "dlsym",
         "dlvsym", "open", "open64", "readlink", "realpath", "stat", "stat64"}


def defined(library: str) -> set:
    """Names that programs can be linked with, without those for one release only."""
    names = set()
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if "PRIVATE" not in version and not re.fullmatch(r"(IBVERBS|RDMACM)_.*", name):
            names.add(name)
    return names


def path_of(name: str) -> str:
    listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True,
                             env={**os.environ, "PATH": os.environ["PATH"] + ":/sbin"})
    found = re.findall(rf"{re.escape(name)} \(.*\) => (\S+)", listing.stdout)
    return found[0] if found else ""


def forgotten(preload: str):
    ours = defined(preload)
    for name, pure in PURE.items():
        path = path_of(name)
        if not path:
            yield f"{name} is nowhere"
            continue
        for symbol in sorted(defined(path) - ours):
            if not re.fullmatch(pure, symbol):
                yield f"{symbol} of {name} would get objects that it did not make"


def strange(preload: str):
    for symbol in sorted(defined(preload) - FILES):
        if not re.fullmatch(r"_?(ibv|rdma)_\w+", symbol):
            yield f"{symbol} is exported"


def linked(preload: str):
    dynamic = output("readelf", "-d", preload)
    for name in re.findall(r"NEEDED.*\[(\S+)\]", dynamic):
        if name.startswith(("libibverbs", "librdmacm", "libsennit")):
            yield f"{name} is loaded into every process, RDMA or not"


def seen(preload: str, program: str):
    """sennit finds its own soft devices, if there are no others, and none of these."""
    done = subprocess.run([program], capture_output=True, text=True,
                          env={**os.environ, "LD_PRELOAD": preload, "SENNIT_SOFT": "auto"})
    if done.returncode or re.search(r"^verbs soft", done.stdout, re.M) or not done.stdout:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


def main() -> None:
    preload, program = sys.argv[1:]
    report = Report()
    report.check("whatever takes an object is there", list(forgotten(preload)))
    report.check("nothing else is exported", list(strange(preload)))
    report.check("the real libraries come when they are needed", list(linked(preload)))
    report.check("sennit itself sees nothing of it", list(seen(preload, program)))
    report.end()


main()
