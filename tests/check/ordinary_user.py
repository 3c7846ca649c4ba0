#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The unit suite as it runs for an ordinary user, under nohup, with a home that is read-only.

usage: ordinary_user.py BUILD-FOLDER SMALL_BUFFERS

Where the check runs as root, its tests run once more as a user without privileges, without a
home and with root's folders not in PATH. Programs that compute in memory are left out: they
ask the kernel for nothing that depends on the user, and take most of the processor time.
SMALL_BUFFERS is a library to preload, for sockets as small as hosts grant by default.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tap import Report, output

USER = 64321  # without a name, a group or files
PATH = "/usr/local/bin:/usr/bin:/bin"
AT_ONCE = 2  # beside other tests
IN_MEMORY = re.compile(
    r"(soft|scripted|qp|op|cm|card)_.+|vqp.*|stream-(data|end|many|peer|flow|fault)|channel-(data|end|peer)|"
    r"conn-(trap|fault)|(loop|conformance)-(.+-)?(sim|scripted)|conformance-soft|sim|fabric")
# Others look at LD_PRELOAD, or at rights.
SMALL = re.compile(r"(udp|shm|stream|channel|conn|loop|example)-?.*")
MULTIPLIER = float(os.environ.get("SNT_TIMEOUT_MULTIPLIER", 1))


# Limits as a login has them, and signals as nohup and a script's & leave them.
ORDINARY = ["sh", "-c", """trap '' HUP INT
    ulimit -S -n 1024
    ulimit -S -l 8192
    exec "$@\"""", "sh"]


def as_user(command: list, build: Path, **options):
    environment = {"PATH": PATH, "HOME": "/nonexistent", **options.pop("env", {})}
    return subprocess.run([*ORDINARY, *command], cwd=build, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, user=USER, group=USER, extra_groups=[],
                          env=environment, **options)


def reachable(command: list, build: Path) -> list:
    """Root's own Python may not be, but the system's is."""
    if "python" not in Path(command[0]).name:
        return command
    if as_user([command[0], "-c", ""], build).returncode == 0:
        return command
    return [shutil.which("python3", path=PATH) or "python3", *command[1:]]


def problems(test: dict, build: Path, small_buffers: str) -> list:
    environment = {"SNT_TIMEOUT_MULTIPLIER": str(MULTIPLIER), **test["env"]}
    if SMALL.fullmatch(test["name"]):
        environment["LD_PRELOAD"] = small_buffers
    try:
        done = as_user(reachable(test["cmd"], build), build, env=environment,
                       timeout=test["timeout"] * MULTIPLIER)
    except subprocess.TimeoutExpired as late:
        return [late]
    bad = re.findall(r"^not ok .*", done.stdout, re.M)
    return [f"status {done.returncode}: {done.stdout}"] if done.returncode or bad else []


def why_not(build: Path) -> str:
    if os.geteuid():
        return "this is an ordinary user already"
    try:
        found = as_user(["ls", "tests", str(Path(__file__).resolve())], build)
    except OSError as error:
        return f"other users cannot run anything: {error.strerror}"
    return f"other users cannot read {build}" if found.returncode else ""


def main() -> None:
    build, small_buffers = (Path(word).resolve() for word in sys.argv[1:])
    reason = why_not(build)
    if reason:
        print("1..0 # SKIP", reason)
        return
    tests = [test for test in json.loads(output("meson", "introspect", "--tests", str(build)))
             if any(suite.endswith(":unit") for suite in test["suite"])
             and not IN_MEMORY.fullmatch(test["name"])]
    tests.sort(key=lambda test: -test["timeout"])
    report = Report()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda test: problems(test, build, str(small_buffers)),
                         tests)
        for test, wrong in zip(tests, found):
            report.check(test["name"], wrong)
            sys.stdout.flush()
    report.end()


main()
