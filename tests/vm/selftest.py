#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Test the VM tier itself. usage: tests/vm/selftest.py [--quick]"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, List, NamedTuple

HERE = Path(__file__).resolve().parent
EVIDENCE_MAX = 1000
MULTIPLIER = float(os.environ.get("SNT_TIMEOUT_MULTIPLIER", 1))
LINES = "".join(f"line {number}\n" for number in range(2000))

# Each prints "ok NAME" or "not ok NAME", one line per check made inside a guest.
CHECK = r"""
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; fi; }
"""

INSIDE_DUMMY = CHECK + r"""
devices() { ibv_devinfo | grep -c "$1"; }
pingpong() { # DEVICE
	long=$((20 * SNT_TIMEOUT_MULTIPLIER))
	timeout $long ibv_rc_pingpong -d "$1" -g 1 -m 4096 -n 50 >/dev/null &
	# Until the server listens.
	until timeout $long ibv_rc_pingpong -d "$1" -g 1 -m 4096 -n 50 127.0.0.1 >/dev/null; do
		kill -0 $! || return
		sleep 0.2
	done
	wait $!
}
check "the root is read-only" sh -c '! touch "$PWD/written" /written 2>/dev/null'
check "/tmp, /run and /dev/shm are writable" touch /tmp/w /run/w /dev/shm/w
check "the folder is the caller's" [ "$PWD" = "$WANT_PWD" ]
check "the environment is passed" [ "$SENNIT_SELFTEST/$GIVEN/${USELESS-unset}" = "a b/c=d/unset" ]
check "tools of root are found" command -v tc
check "two rxe devices are active" [ "$(devices PORT_ACTIVE)" = 2 ]
check "active_mtu is 4096" [ "$(devices 'active_mtu:.*4096')" = 2 ]
check "rxe0 carries traffic" pingpong rxe0
check "rxe1 carries traffic" pingpong rxe1
check "rdma_cm is there" [ -c /dev/infiniband/rdma_cm ]
check "stdout can be reopened" sh -c ': >>/dev/stdout'
echo data >"$VM_RESULTS/result"
sleep 1000 & # must not keep the guest
i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i + 1)); done
exit 7
"""

INSIDE_VETH = CHECK + r"""
microseconds() { # the round trip between the two ends of pair 0
	long=$((20 * SNT_TIMEOUT_MULTIPLIER))
	timeout $long ibv_rc_pingpong -d rxb0 -g 1 -n 10 >/dev/null &
	until timeout $long ibv_rc_pingpong -d rxa0 -g 1 -n 10 127.0.0.1 >/tmp/client; do
		kill -0 $! || return
		sleep 0.2
	done
	sed -n 's/.* = \([0-9]*\).* usec.*/\1/p' /tmp/client
	wait $!
}
sent() { cat /sys/class/net/va0/statistics/tx_packets; }
crossing() { before=$(sent); tcp && [ "$(sent)" -gt "$before" ]; }
tcp() {
	python3 - <<-.
		import socket
		server = socket.create_server(("10.0.0.2", 7000))
		client = socket.create_connection(("10.0.0.2", 7000), 5, ("10.0.0.1", 0))
		client.send(b"x")
		assert server.accept()[0].recv(1) == b"x"
	.
}
check "four rxe devices are active" [ "$(ibv_devinfo | grep -c PORT_ACTIVE)" = 4 ]
check "TCP between the ends crosses the wire" crossing
fast=$(microseconds)
tc qdisc add dev va0 root netem delay 30ms
slow=$(microseconds) # its bound holds on a busy machine too, where both are slow
check "netem delays RDMA: $fast, then $slow us" [ "$slow" -ge 29000 ]
"""

INSIDE_PAIR = CHECK + r"""
pingpong() { # RAIL
	if [ "$VM_HOST" = 0 ]; then
		ibv_rc_pingpong -d "rxe$1" -g 1 -m 4096 -n 50 -p "700$1"
	else
		for _ in $(seq $((10 * SNT_TIMEOUT_MULTIPLIER))); do
			ibv_rc_pingpong -d "rxe$1" -g 1 -m 4096 -n 50 -p "700$1" "$VM_PEER" && return
			sleep 0.5
		done
		return 1
	fi
}
check "rail 0 reaches the other guest" pingpong 0
check "rail 1 reaches the other guest" pingpong 1
echo "$VM_HOST" >"$VM_RESULTS/host"
exit $((3 * VM_HOST))
"""


class Outcome(NamedTuple):
    status: int
    output: str
    errors: str
    seconds: float


passed = failed = 0


def check(name: str, good: bool, evidence: object = "") -> None:
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print(f"{'ok' if good else 'FAILED'}: {name}", flush=True)
    if not good and evidence != "":
        text = str(evidence)[:EVIDENCE_MAX].rstrip()
        print("    " + text.replace("\n", "\n    "), flush=True)


def check_inside(outcome: Outcome, count: int) -> None:
    """Count the checks that the guest made; `count` says how many it should."""
    verdicts = re.findall(r"^(?:\[\d\] )?(not ok|ok) (.*)$", outcome.output, re.MULTILINE)
    for verdict, name in verdicts:
        check(name, verdict == "ok", outcome.output)
    check(f"the guest made its {count} checks", len(verdicts) == count, outcome)


def run(*arguments: str, **environment: str) -> Outcome:
    begun = time.monotonic()
    done = subprocess.run([str(HERE / "run.py"), *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, **environment})
    return Outcome(done.returncode, done.stdout, done.stderr,
                   time.monotonic() - begun)


def qemus_of(folder: Path) -> List[int]:
    """The QEMU processes that were given a file below `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (b"qemu-system" in arguments[0]
                and any(os.fsencode(folder) in argument for argument in arguments)):
            found.append(int(entry.name))
    return found


def gone(condition: Callable[[], bool], seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return not condition()


def test_single(folder: Path) -> None:
    got = run("--env", "GIVEN=c=d", "--env", f"WANT_PWD={os.getcwd()}",
              "--results", str(folder / "results"), "--", "sh", "-c", INSIDE_DUMMY,
              SENNIT_SELFTEST="a b", USELESS="x", PATH="/usr/bin:/bin")
    check("exit status 7 passes through", got.status == 7, got)
    check_inside(got, 11)
    check("2,000 lines arrive, in order", got.output.endswith(LINES), got.output[-300:])
    result = folder / "results" / "result"
    check("results come out", result.is_file() and result.read_text() == "data\n")


def test_signal() -> None:
    got = run("sh", "-c", "echo said; kill -SEGV $$")
    check("a signal passes through as 128+n", got.status == 128 + signal.SIGSEGV, got)
    check("and nothing is added to the output", got.output == "said\n", got)


def test_hang() -> None:
    got = run("--deadline", "25", "sh", "-c", "seq 100 140; sleep 1000",
              SNT_TIMEOUT_MULTIPLIER="1")
    check("a hanging command ends with 124", got.status == 124, got)
    check("at its deadline", 25 <= got.seconds < 30, got.seconds)
    check("with the end of its output", "\n140\n" in got.errors
          and "\n111\n" in got.errors and "\n110\n" not in got.errors, got)


def test_panic() -> None:
    got = run("sh", "-c", "echo before; sleep 0.5; echo c >/proc/sysrq-trigger; sleep 1000")
    check("a panic ends with 124", got.status == 124, got)
    check("soon", got.seconds < 60 * MULTIPLIER, got.seconds)
    check("and is named, with the console", "the kernel panicked" in got.errors
          and "sysrq triggered crash" in got.errors, got)


def test_set_up_failure() -> None:
    got = run("--memory", "1", "true")
    check("a guest that cannot boot ends with 125", got.status == 125, got)
    with tempfile.TemporaryDirectory() as empty:
        got = run("true", SNT_CACHE=empty)
    check("so does a missing image, with advice", got.status == 125
          and "run tests/vm/prepare.py" in got.errors, got)


def test_ending(folder: Path, number: signal.Signals) -> None:
    """End a run from outside while its guest is up: nothing stays behind."""
    process = subprocess.Popen([str(HERE / "run.py"), "sh", "-c", "echo up; sleep 1000"],
                               stdout=subprocess.PIPE)
    up = process.stdout.readline() == b"up\n"
    qemus = qemus_of(folder)
    process.send_signal(number)
    status = process.wait()
    process.stdout.close()
    check(f"{number.name} ends a run that is up", up and len(qemus) == 1
          and status in (-number, 128 + number), (up, qemus, status))
    check("and its QEMU", gone(lambda: bool(qemus_of(folder)), 5), qemus)


def test_veth() -> None:
    got = run("--net", "veth", "sh", "-c", INSIDE_VETH)
    check("exit status 0 passes through", got.status == 0, got)
    check_inside(got, 3)


def test_pair(folder: Path) -> None:
    results = folder / "pair"
    got = run("--guests", "2", "--results", str(results), "sh", "-c", INSIDE_PAIR)
    check("the worse status of two guests counts", got.status == 3, got)
    check_inside(got, 4)
    lines = got.output.splitlines()
    check("output lines say whose they are",
          lines and all(line[:4] in ("[0] ", "[1] ") for line in lines), got.output)
    hosts = [(results / name / "host").read_text() for name in ("0", "1")]
    check("results come out of both", hosts == ["0\n", "1\n"], hosts)


def main(arguments: List[str]) -> int:
    if arguments not in ([], ["--quick"]):
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="sennit-vm-selftest-") as name:
        folder, runs = Path(name), Path(name) / "runs"
        runs.mkdir()
        os.environ["TMPDIR"] = str(runs)  # so that what stays behind can be seen
        test_single(folder)
        test_panic()
        test_ending(runs, signal.SIGTERM)
        test_pair(folder)
        if not arguments:
            test_signal()
            test_hang()
            test_veth()
            test_set_up_failure()
            test_ending(runs, signal.SIGINT)
        left = list(runs.iterdir())
        check("no folder stays behind", not left, left)
        if not arguments:
            test_ending(runs, signal.SIGKILL)
        check("no QEMU stays behind", not qemus_of(runs), qemus_of(runs))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
