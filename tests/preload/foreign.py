#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that know nothing of sennit, on soft devices by libsennit-preload.so.

usage: foreign.py [--write] [--quick] [--only CASE] [--verbose] WAY LIBRARY

WAY is a column of the table in docs/use/preload.md: which device runs the server and which
the client. Prints TAP, a result for each case: whether it works must be what the table says.
With --write the page is printed instead, with what was found. A program that is not
installed is skipped.

The ways "udp" and "shm" run here, on two addresses of a network namespace of its own. The
others, which name the server's device first, need rxe, and run in a guest (tests/vm/run.py):
soft devices in namespace "blue", rxe in the first one, a cable in between. An end with rxe
runs without LIBRARY, but for "rxe, rxe", where both have it for nothing.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "check"), str(HERE.parent / "conformance")]
from compare import Table  # noqa: E402
from tap import ROOT  # noqa: E402

PAGE = ROOT / "docs/use/preload.md"
INSIDE = "SENNIT_FOREIGN_INSIDE"
ON_HOST = {"udp": "off", "shm": "on"}
PACKAGES = {"ibv_": "ibverbs-utils", "ib_": "perftest", "fi_": "libfabric-bin",
            "ucx_": "ucx-utils", "mpirun.openmpi": "openmpi-bin", "mpirun.mpich": "mpich",
            "mpicc.openmpi": "libopenmpi-dev", "mpicc.mpich": "libmpich-dev"}
# by how programs begin; all others are of rdmacm-utils
FOLDER = tempfile.TemporaryDirectory(prefix="sennit-foreign-")  # programs of our own
PLAIN = os.environ.get("SENNIT_PLAIN_PEER", "")  # tests/conn/plain_peer.c
EXAMPLE = os.environ.get("SENNIT_RPING", "")  # examples/17-rping.c
PATIENCE = float(os.environ.get("SNT_TIMEOUT_MULTIPLIER", 1))


@dataclass
class Side:
    """Where a program runs, and on which device."""
    address: str
    device: str
    gid: int
    soft: bool
    prefix: tuple = ()
    shm: str = "off"
    preload: bool = True

    def words(self, command: str, peer: "Side") -> list:
        ours = f"env SENNIT_SOFT={'only' if self.soft else 'never'}"
        return shlex.split(command.format(device=self.device, gid=self.gid, folder=FOLDER.name,
                                          plain=f"{ours} {PLAIN}",
                                          example=f"{ours} {EXAMPLE}",
                                          address=self.address, peer=peer.address))

    def environment(self, library: str) -> dict:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SENNIT_")}
        # UCX is to use the device under test, and nothing else.
        kept["UCX_NET_DEVICES"] = self.device + ":1"
        kept["UCX_TLS"] = "rc_verbs,ud_verbs,self"
        kept["FI_VERBS_GID_IDX"] = str(self.gid)
        if self.preload:
            kept["LD_PRELOAD"] = library
        if self.soft:
            kept["SENNIT_SOFT_ADDRESSES"] = self.address
            kept["SENNIT_SOFT_SHM"] = self.shm
        else:
            # rxe does not tell by which IP a datagram came, and UCX would drop all.
            kept["UCX_UD_VERBS_ETH_DGID_CHECK"] = "n"
        return kept


@dataclass
class Case:
    """A server and a client, or one program; what it prints if all went well."""
    name: str
    server: str
    client: str = ""
    says: str = ""  # a pattern for the output of the client, or of the one
    quick: bool = False
    # A client that comes before its server has got where it has to be spoils the server:
    # both begin again, which is a race that the program has on every device.
    races: bool = False
    # The client tells the server which device to use, so that both have the same name.
    alike: bool = False
    # The command starts both sides, which share a host.
    both: bool = False


def pingpong(name: str, options: str = "", quick: bool = False) -> Case:
    command = f"ibv_{name}_pingpong -d {{device}} -g {{gid}} -n 100 {options}"
    return Case(" ".join(f"ibv_{name}_pingpong {options}".split()), command,
                command + " {peer}", r"iters in", quick)


def perftest(name: str, options: str = "", shown: str = "", quick: bool = False) -> Case:
    count = 100 if name.endswith("_bw") else 20
    # Timeouts that a busy processor does not exceed, and as many READs as both can do.
    reads = "-o 16" if name.startswith(("read", "atomic")) else ""
    command = f"ib_{name} -d {{device}} -x {{gid}} -n {count} -F -u 17 {reads} {options}"
    return Case(" ".join(f"ib_{name} {shown or options}".split()), command,
                command + " {peer}", r"\n +\d+ +\d+ +[0-9.]+", quick,
                "-R" in options)


def libfabric(endpoint: str, provider: str = "verbs", domain: str = "",
              quick: bool = False) -> Case:
    command = f"fi_pingpong -p '{provider}' -e {endpoint} -I 20 -S 4096 {domain}"
    return Case(f"fi_pingpong -e {endpoint} -p {provider}", command, command + " {peer}",
                r"4k +20 +=20", quick)


def ucx(test: str, options: str = "", shown: str = "", quick: bool = False) -> Case:
    command = f"ucx_perftest -t {test} -n 50 {options}"
    return Case(" ".join(f"ucx_perftest -t {test} {shown}".split()), command,
                command + " {peer}", r"Final: +50", quick, alike="-d" in options)


def plain(server: str, client: str, language: str, quick: bool = False) -> list:
    """A plain connection of sennit's, with the program in either role."""
    port = 7174 if language == "rping" else 7471
    return [Case(f"{shlex.split(server)[0]}, SNT_CARRIER_PLAIN connects", server,
                 f"{{plain}} connect {{peer}} {port} {language}", r"all is well", quick),
            Case(f"{shlex.split(client)[0]}, SNT_CARRIER_PLAIN listens",
                 f"{{plain}} listen {{address}} {port} {language}", client, "", quick)]


# Which file of an MPI program, and how a rank gets its own value of a variable.
MPI = {"openmpi": ("--allow-run-as-root --oversubscribe --mca pml ucx --mca osc ucx", "-x {}={}"),
       "mpich": ("-localhost 127.0.0.1", "-env {} {}")}


def mpi(name: str, shown: str, addresses: tuple = ("{address}", "{peer}")) -> Case:
    """Ranks of mpi.c, each with its address."""
    options, setting = MPI[name]
    ranks = [f"-n 1 {setting.format('SENNIT_SOFT_ADDRESSES', address)} {{folder}}/{name}"
             for address in addresses]
    return Case(shown, f"mpirun.{name} {options} {' : '.join(ranks)}",
                says=f"{len(addresses)} ranks, all is right", both=True)


CASES = [
    Case("ibv_devices", "ibv_devices", says=r"{device}\s+[0-9a-f]{{16}}", quick=True),
    Case("ibv_devinfo -v", "ibv_devinfo -v -d {device}",
         says=r"PORT_ACTIVE[^$]*GID\[ +{gid}\]:\s+(::ffff:)?\S+, RoCE v2", quick=True),
    pingpong("rc", quick=True),
    pingpong("rc", "-e"),
    pingpong("srq", quick=True),
    pingpong("ud", quick=True),
    pingpong("uc"),
    pingpong("xsrq"),
    *(perftest(verb, quick=verb == "write_bw") for verb in
      ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat",
       "atomic_bw", "atomic_lat")),
    perftest("write_bw", "-q 4 -b"),
    perftest("send_bw", "-e"),
    perftest("send_bw", "-c UD"),
    perftest("send_bw", "-r 64 --use-srq"),
    *(perftest(verb, "-R", quick=verb == "send_bw") for verb in
      ("write_bw", "write_lat", "read_bw", "read_lat", "send_bw", "send_lat",
       "atomic_bw", "atomic_lat")),
    Case("rping", "rping -s -a {address} -C 10 -v", "rping -c -a {peer} -C 10 -v",
         r"ping data: rdma-ping-9", True),
    Case("rping -q", "rping -s -q -a {address} -C 10 -v", "rping -c -q -a {peer} -C 10 -v",
         r"ping data: rdma-ping-9"),
    Case("rping on all addresses", "rping -s -C 10 -v", "rping -c -a {peer} -C 10 -v",
         r"ping data: rdma-ping-9"),
    Case("ucmatose", "ucmatose -b {address}", "ucmatose -s {peer}", r"return status 0", True),
    Case("ucmatose -c 20 -m", "ucmatose -b {address} -c 20 -C 20 -S 1000 -m",
         "ucmatose -s {peer} -c 20 -C 20 -S 1000 -m", r"return status 0"),
    Case("rdma_server, rdma_client", "rdma_server", "rdma_client -s {peer}",
         r"rdma_client: end 0", True),
    Case("rdma_xserver, rdma_xclient", "rdma_xserver", "rdma_xclient -s {peer}",
         r"rdma_xclient: end 0", True),
    *plain("rping -s -a {address} -C 3 -V", "rping -c -a {peer} -C 3 -V", "rping", True),
    Case("rping, examples/17-rping.c listens", "{example} {address} 7174",
         "rping -c -a {peer} -C 3 -V", quick=True),
    *plain("ucmatose -b {address}", "ucmatose -s {peer}", "messages"),
    *plain("rdma_server", "rdma_client -s {peer}", "hello"),
    Case("udaddy", "udaddy -b {address}", "udaddy -s {peer}", r"return status 0"),
    Case("rstream", "rstream -b {address} -S 64k -C 10", "rstream -s {peer} -S 64k -C 10",
         r"64k_lat"),
    libfabric("msg", quick=True),
    libfabric("rdm", "verbs;ofi_rxm"),
    libfabric("dgram", "verbs", "-d {device}-dgram"),
    ucx("put_bw", "-x rc_verbs -d {device}:1 -s 65536 -D zcopy", "-x rc_verbs"),
    ucx("get", "-x rc_verbs -d {device}:1 -s 65536 -D zcopy", "-x rc_verbs"),
    ucx("am_lat", "-x rc_verbs -d {device}:1 -s 32", "-x rc_verbs"),
    ucx("am_lat", "-x ud_verbs -d {device}:1 -s 32", "-x ud_verbs"),
    ucx("tag_bw", "-s 65536"),
    ucx("ucp_put_bw", "-s 65536", quick=True),
    ucx("ucp_get", "-s 65536"),
    mpi("openmpi", "OpenMPI"),
    mpi("openmpi", "OpenMPI, two ranks on one address", ("{address}",) * 2),
    mpi("mpich", "MPICH"),
    mpi("mpich", "MPICH, four ranks on one address", ("{address}",) * 4),
]


class Failure(Exception):
    pass


def shorten(text: str) -> list:
    lines = [line.rstrip() for line in text.splitlines() if line.strip(" -")]
    return lines if len(lines) <= 16 else [*lines[:6], "...", *lines[-10:]]


class Program:
    """A program of one side, with its output in a file."""

    def __init__(self, side: Side, peer: Side, command: str, library: str) -> None:
        self.words = side.words(command, peer)
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [*side.prefix, *self.words], env=side.environment(library),
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
            start_new_session=True)

    def text(self) -> str:
        self.output.seek(0)
        return self.output.read()

    def failed(self) -> bool:
        return bool(self.process.poll())

    def wait(self, deadline: float, peer: "Program" = None) -> int:
        """The exit status, or -1. A peer that has failed is not waited for much longer."""
        while time.monotonic() < deadline:
            try:
                return self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                if peer and peer.failed():
                    deadline, peer = min(deadline, time.monotonic() + 2), None
        return -1

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def failure(self, status: int) -> Failure:
        how = "has not ended" if status < 0 else f"status {status}"
        lines = shorten(self.text())
        return Failure("\n".join([f"{shlex.join(self.words)}: {how}", *lines]))


def check(program: Program, status: int, says: str) -> None:
    if status or not re.search(says, "\n" + program.text()):
        raise program.failure(status)


def run_one(case: Case, side: Side, peer: Side, library: str, patience: float) -> None:
    program = Program(side, peer, case.server, library)
    try:
        status = program.wait(time.monotonic() + patience)
        check(program, status, case.says.format(device=side.device, gid=side.gid))
    finally:
        program.end()


def run_client(case: Case, sides: tuple, library: str, serving: Program,
               deadline: float) -> None:
    """A client that fails while the server lives has come too early, and tries again."""
    server, client = sides
    for attempt in range(7):
        asking = Program(client, server, case.client, library)
        try:
            status = asking.wait(deadline, serving)
            early = status > 0 and serving.process.poll() is None and not case.races
            if not early or attempt == 6:
                check(asking, status, case.says)
                return
        finally:
            asking.end()
        time.sleep(0.05 * 2 ** attempt)


def run_pair(case: Case, sides: tuple, library: str, patience: float,
             head_start: float) -> None:
    deadline = time.monotonic() + patience
    serving = Program(*sides, case.server, library)
    try:
        time.sleep(head_start)
        run_client(case, sides, library, serving, deadline)
        status = serving.wait(deadline)
        if status:
            raise serving.failure(status)
    except Failure as failure:
        raise Failure(f"{failure}\nserver: " +
                      "\n".join(shorten(serving.text()))) from None
    finally:
        serving.end()


def run_again(case: Case, sides: tuple, library: str, patience: float) -> None:
    """Programs have timeouts of their own, which a busy machine exceeds now and then."""
    for attempt in range(5 if case.races else 2):
        try:
            if case.races:
                run_pair(case, sides, library, patience / 4, 0.3 * (attempt + 1))
            else:
                run_pair(case, sides, library, patience, 0)
            return
        except Failure as failure:
            last = failure
    raise last


def package_of(program: str) -> str:
    """As scripts/setup.sh installs them."""
    found = [package for start, package in PACKAGES.items() if program.startswith(start)]
    return found[0] if found else "rdmacm-utils"


def missing(case: Case) -> str:
    words = {shlex.split(c)[0] for c in (case.server, case.client) if c}
    if words & {"{plain}", "{example}"} and not (PLAIN and EXAMPLE):
        return "SENNIT_PLAIN_PEER and SENNIT_RPING do not name our own programs"
    words -= {"{plain}", "{example}"}
    if case.both:
        words |= {word.replace("mpirun", "mpicc") for word in words}
    return " and ".join(f"{word} is not installed (Debian: {package_of(word)})"
                        for word in sorted(words) if not shutil.which(word))


def build_mpi(case: Case) -> None:
    name = shlex.split(case.server)[0].removeprefix("mpirun.")
    done = subprocess.run([f"mpicc.{name}", "-O2", "-o", f"{FOLDER.name}/{name}",
                           str(HERE / "mpi.c")], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"mpicc.{name}: {done.stderr}")


def run_case(case: Case, sides: tuple, library: str, patience: float) -> str:
    """What the table has to say: "works" or "does not"; "-" where it cannot be told."""
    if missing(case):
        return f"skip: {missing(case)}"
    alone = next((side for side in sides if side.soft), sides[0])
    try:
        if case.client:
            run_again(case, sides, library, patience)
        elif case.both:
            build_mpi(case)
            run_one(case, *sides, library, patience)
        else:
            run_one(case, alone, alone, library, patience)
    except Failure as failure:
        print("#", str(failure).replace("\n", "\n# "), flush=True)
        return "does not"
    return "works"


#
# Places to run in
#


def shell(command: str) -> None:
    subprocess.run(["sh", "-euc", command], check=True)


def name_localhost(address: str) -> str:
    """libfabric looks for its own devices at "localhost". Returns a command for it."""
    hosts = Path(tempfile.mkdtemp()) / "hosts"
    hosts.write_text(f"{address} localhost\n")
    return f"mount --bind {hosts} /etc/hosts"


def soft_soft(shm: str) -> tuple:
    shell("""ip link set lo up
        ip link add soft type veth peer name tfos
        for link in soft tfos; do ip link set $link mtu 9000 up; done
        for i in 1 2; do ip addr add 10.9.0.$i/24 dev soft; done""")
    shell(name_localhost("10.9.0.1"))
    return tuple(Side(f"10.9.0.{i}", "soft0", 0, True, shm=shm) for i in (1, 2))


def with_rxe(preload: bool) -> dict:
    shell(f". {ROOT}/tests/vm/soft_net.sh; soft_net 9000 4; {name_localhost('10.5.0.1')}")
    # A command in another network namespace has mounts of its own.
    there = name_localhost("10.5.0.2") + '; exec "$@"'
    soft = Side("10.5.0.2", "soft0", 0, True,
                ("ip", "netns", "exec", "blue", "sh", "-c", there, "sh"))
    return {"soft": soft, "rxe": Side("10.5.0.1", "rxr0", 1, False, preload=preload)}


def sides_of(way: str) -> tuple:
    if way in ON_HOST:
        return soft_soft(ON_HOST[way])
    server, client = way.split(", ")
    sides = with_rxe(server == client)
    return sides[server], sides[client]


def go_inside(way: str) -> None:
    """Again, where there is a network of one's own."""
    command = [sys.executable, *sys.argv]
    if way in ON_HOST:
        enclosure = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
        tried = subprocess.run([*enclosure, "sh", "-ec", """ip link set lo up
            ip link add soft type veth peer name tfos
            mount --bind /etc/hosts /etc/hosts"""], capture_output=True, text=True)
        if tried.returncode:
            print("1..0 # SKIP no network namespace can be made:",
                  " ".join(tried.stderr.split()))
            sys.exit()
        os.environ[INSIDE] = "1"
        os.execvp(enclosure[0], [*enclosure, *command])
    run = ROOT / "tests/vm/run.py"
    os.execv(run, [run, "--deadline", "2400", "--env", f"{INSIDE}=1", "--", *command])


#
# The table
#


def report(results: dict, expected: dict, some: bool) -> int:
    failed = 0
    if not some:
        results = {**{name: "is no case any more" for name, words in expected.items()
                      if words != "-"}, **results}
    for number, (name, words) in enumerate(results.items(), 1):
        if words.startswith("skip: "):
            print(f"ok {number} - {name} # SKIP {words[6:]}")
            continue
        good = words == expected.get(name)
        failed += not good
        print("ok" if good else "not ok", number, "-", name)
        if not good:
            print(f"# the table says: {expected.get(name, 'nothing')}; it {words}")
    print(f"1..{len(results)}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="some of the cases")
    parser.add_argument("--only", metavar="CASE", help="a pattern for its name")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("way", metavar="WAY")
    parser.add_argument("library", metavar="LIBRARY")
    args = parser.parse_args()
    table = Table(PAGE.read_text())
    if args.way not in table.columns[1:]:
        sys.exit(f"foreign.py: the table has no column {args.way!r}")
    if INSIDE not in os.environ:
        go_inside(args.way)
    library = str(Path(args.library).resolve())
    sides = sides_of(args.way)
    # Processors may be busy with something else, and programs that spin suffer most.
    patience = PATIENCE * (60 if args.way in ON_HOST else 240)
    # That nothing changes is seen by some.
    args.quick |= args.way == "rxe, rxe"
    results = {}
    for case in CASES:
        if (args.quick and not case.quick) or (args.only and not re.search(args.only, case.name)):
            continue
        if case.alike and sides[0].device != sides[1].device:
            continue
        if case.both and args.way not in ON_HOST:
            continue
        begin = time.monotonic()
        results[case.name] = run_case(case, sides, library, patience)
        if args.verbose:
            print(f"# {case.name}: {results[case.name]}, "
                  f"{time.monotonic() - begin:.1f} s", flush=True)
    if args.write:
        for name, words in results.items():
            table.rows.setdefault(name, {"case": name})[args.way] = words
        print(table, end="")
        return 0
    some = args.quick or args.only
    return report(results, table.column(args.way), some)


if __name__ == "__main__":
    sys.exit(main())
