#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a command on a real kernel with rxe devices, in a virtual machine.

The guest sees this machine's root, read-only, and starts in the current folder;
/tmp, /run and /dev/shm are its own. Exit status: the command's, as sh has it;
124 if the guest hung or died under it; 125 if the guest could not be set up.
"""

import argparse
import ctypes
import fcntl
import glob
import math
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

HERE = Path(__file__).resolve().parent
STATUS_LOST, STATUS_NO_GUEST = 124, 125
TAIL_BYTES = 32 << 10
OUTPUT_LINES, CONSOLE_LINES = 30, 60  # a panic's first line is 40 from the end
CONSOLE_BYTES_MAX = 4 << 20
LINE_BYTES_MAX = 64 << 10
TEMPORARY = ".sennit-vm-run-"
PASSED = re.compile(r"PATH|HOME|LANG|LC_ALL|LD_LIBRARY_PATH|SENNIT_.*"
                    r"|(A|L|T|UB)SAN_OPTIONS|G_MESSAGES_.*")
# Commands are root in the guest, where ordinary users of the host lack these in PATH.
ROOT_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
MULTIPLIER = "SNT_TIMEOUT_MULTIPLIER"
NEEDED = {"qemu-system-x86_64": "qemu-system-x86", "ip": "iproute2", "rdma": "iproute2",
          "ibv_devinfo": "ibverbs-utils"}
CONTROL_ADDRESS = ("10.99.0.1", "10.99.0.2")
LINKS = 3  # of a pair of guests: control, rail 0, rail 1


class Problem(Exception):
    """A sentence for the user: there is no guest to run the command in."""


def say(text: str) -> None:
    print(f"tests/vm/run.py: {text}", file=sys.stderr, flush=True)


def multiplier() -> int:
    """By what deadlines are multiplied: as Meson's timeouts, which scripts/check.py says."""
    try:
        return max(1, math.ceil(float(os.environ.get(MULTIPLIER, "1"))))
    except ValueError:
        raise Problem(f"{MULTIPLIER} is not a number") from None


def root_path(path: str) -> str:
    folders = path.split(os.pathsep) if path else []
    return os.pathsep.join(folders + [f for f in ROOT_FOLDERS if f not in folders])


class Tail:
    """The end of what a guest wrote, for the report when it fails."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, data: bytes) -> None:
        self.data = (self.data + data)[-TAIL_BYTES:]

    def last(self, count: int) -> str:
        lines = self.data.decode(errors="replace").replace("\r", "").splitlines()
        return "\n".join(lines[-count:]) or "(nothing)"


class Printer:
    """Passes output on; with a prefix, by whole lines, so that guests can mix."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.pending = b""

    def write(self, data: bytes) -> None:
        if not self.prefix:
            self._put(data)
            return
        lines = (self.pending + data).split(b"\n")
        self.pending = lines.pop()
        if len(self.pending) > LINE_BYTES_MAX:
            lines, self.pending = lines + [self.pending], b""
        self._put(b"".join(self.prefix + line + b"\n" for line in lines))

    def finish(self) -> None:
        if self.pending:
            self._put(self.prefix + self.pending + b"\n")
            self.pending = b""

    @staticmethod
    def _put(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Guest:
    """One QEMU process, its console and the port that carries the output."""

    def __init__(self, index: int, folder: Path, options: argparse.Namespace,
                 image: Tuple[str, str], links: List[int]) -> None:
        self.index = index
        self.begun = time.monotonic()
        self.started = False
        self.may_die = options.mortal and index > 0
        self.status: Optional[int] = None
        self.failure = ""
        self.unread = b""
        self.nonce = secrets.token_hex(16)
        self.mark = b"\x1e%s " % self.nonce.encode()
        self.printer = Printer(b"[%d] " % index if options.guests > 1 else b"")
        self.output_tail, self.console_tail = Tail(), Tail()
        self.share = folder / f"share{index}"
        fill_share(self, options)
        self.console_log = open(folder / f"console{index}.log", "wb")
        self.output, output = socket.socketpair()
        self.console, console = socket.socketpair()
        self.channels_open = 2
        with output, console:
            ends = [output.fileno(), console.fileno()]
            self.process = start_qemu(
                qemu_command(self, options, image, links, *ends), links + ends)

    def fail(self, status: int, why: str) -> None:
        if self.status is None:
            self.status, self.failure = status, why

    def died(self) -> None:
        """QEMU ended, which it should do only when we kill it."""
        if self.may_die and self.started and self.status is None:
            self.status = 0
        panic = b"Kernel panic" in self.console_tail.data
        self.fail(STATUS_LOST if self.started else STATUS_NO_GUEST,
                  "the kernel panicked" if panic else "QEMU ended by itself")

    def read_console(self) -> bool:
        data = receive(self.console)
        self.console_tail.add(data)
        if self.console_log.tell() < CONSOLE_BYTES_MAX:
            self.console_log.write(data)
        return bool(data)

    def read_output(self) -> bool:
        data = receive(self.output)
        self.unread += data
        while self.unread and self._take():
            pass
        return bool(data)

    def _take(self) -> bool:
        """Take a piece off `unread`: plain output, or a line that is for us."""
        start = self.unread.find(self.mark[:1])
        if start != 0:
            self._pass_on(start if start > 0 else len(self.unread))
        elif self.unread.startswith(self.mark):
            line, newline, rest = self.unread[len(self.mark):].partition(b"\n")
            if not newline:
                return False
            self.unread = rest
            self._told(line.decode(errors="replace"))
        elif self.mark.startswith(self.unread):
            return False
        else:
            self._pass_on(1)
        return True

    def _pass_on(self, length: int) -> None:
        data, self.unread = self.unread[:length], self.unread[length:]
        self.output_tail.add(data)
        self.printer.write(data)

    def _told(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "start":
            self.started = True
            self.boot_s = time.monotonic() - self.begun
        elif word == "exit":
            self.status = int(rest)
        else:
            self.fail(STATUS_NO_GUEST, rest)

    def report(self, verbose: bool) -> None:
        self.printer.finish()
        if verbose and self.started:
            say(f"guest {self.index}: {self.boot_s:.1f} s until the command started, "
                f"{time.monotonic() - self.begun:.1f} s in all")
        if self.failure:
            say(f"guest {self.index}: {self.failure}")
            self._show("output", self.output_tail.last(OUTPUT_LINES))
            self._show("console", self.console_tail.last(CONSOLE_LINES))

    def _show(self, what: str, lines: str) -> None:
        print(f"--- guest {self.index}: the end of its {what}\n{lines}\n---",
              file=sys.stderr, flush=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for channel in (self.output, self.console, self.console_log):
            channel.close()


def fill_share(guest: Guest, options: argparse.Namespace) -> None:
    """Write what the guest's init reads: its part in the run, and the job."""
    pair = options.guests > 1
    peer = CONTROL_ADDRESS[1 - guest.index]
    variables = passed_environment(options)
    variables["VM_RESULTS"] = "/run/sennit-vm/results"
    if pair:
        variables.update(VM_HOST=str(guest.index), VM_PEER=peer)
    words = ["env", "-i"] + [f"{name}={value}" for name, value in variables.items()]
    (guest.share / "results").mkdir(parents=True)
    (guest.share / "config").write_text(
        f"{guest.nonce} {'pair' if pair else options.net} {guest.index} {peer}\n")
    (guest.share / "job").write_bytes(os.fsencode(
        f"cd {shlex.quote(os.getcwd())} || exit {STATUS_NO_GUEST}\n"
        f"exec {shlex.join(words + options.command)}\n"))


def receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(64 << 10)
    except ConnectionResetError:  # QEMU was killed with something unread
        return b""


def passed_environment(options: argparse.Namespace) -> Dict[str, str]:
    passed = {name: value for name, value in os.environ.items()
              if PASSED.fullmatch(name)}
    passed["PATH"] = root_path(passed.get("PATH", "/usr/bin:/bin"))
    passed[MULTIPLIER] = str(multiplier())
    for setting in options.env:
        name, _, value = setting.partition("=")
        passed[name] = value
    return passed


def qemu_command(guest: Guest, options: argparse.Namespace, image: Tuple[str, str],
                 links: List[int], output: int, console: int) -> List[str]:
    share = str(guest.share).replace(",", ",,")
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
        # Plain emulation works everywhere; -erms because emulated rep movsb crawls.
        "-accel", "tcg,thread=multi", "-cpu", "max,-erms",
        "-smp", str(2 // options.guests), "-m", str(options.memory),
        "-no-reboot", "-kernel", image[0], "-initrd", image[1],
        # A panic reboots at once, that is, ends QEMU; and every oops is a panic. On a busy
        # host ticks come late, which the kernel would take for a broken timer.
        # What the kernel does not know becomes a variable of init.
        "-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off "
                   f"no_timer_check multiplier={multiplier()}",
        "-virtfs", "local,path=/,mount_tag=root,security_model=none,"
                   "readonly=on,multidevs=remap",
        "-virtfs", f"local,path={share},mount_tag=share,security_model=none",
        "-chardev", f"socket,id=console,fd={console}", "-serial", "chardev:console",
        "-chardev", f"socket,id=output,fd={output}", "-device", "virtio-serial-pci",
        "-device", "virtserialport,chardev=output,name=output",
    ]
    for number, link in enumerate(links):
        mac = f"52:54:00:00:0{guest.index}:0{number}"
        command += ["-netdev", f"stream,id=link{number},addr.type=fd,addr.str={link}",
                    "-device", f"virtio-net-pci,netdev=link{number},mac={mac},"
                               "host_mtu=9000"]
    return command


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def start_qemu(command: List[str], inherited: List[int]) -> subprocess.Popen:
    parent = os.getpid()

    def die_with_parent() -> None:  # even if the parent is killed by SIGKILL
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    # A session of its own: Ctrl-C in a terminal is for us, then we end it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2,
                            pass_fds=inherited, start_new_session=True,
                            preexec_fn=die_with_parent)


def check_programs() -> None:
    path = root_path(os.environ.get("PATH", os.defpath))
    for program, package in NEEDED.items():
        if not shutil.which(program, path=path):
            raise Problem(f"{program} is not installed (Debian: {package})")


def find_image() -> Tuple[str, str]:
    found = subprocess.run([sys.executable, str(HERE / "prepare.py"), "--find"],
                           stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        raise SystemExit(STATUS_NO_GUEST)
    kernel, initramfs = found.stdout.splitlines()
    return kernel, initramfs


def start_guests(options: argparse.Namespace, folder: Path,
                 guests: List[Guest]) -> None:
    check_programs()
    image = find_image()
    wires = [socket.socketpair() for _ in range(LINKS if options.guests > 1 else 0)]
    for index in range(options.guests):
        links = [wire[index].fileno() for wire in wires]
        guests.append(Guest(index, folder, options, image, links))
    for wire in wires:
        for end in wire:
            end.close()


def watch(guests: List[Guest], deadline_s: float) -> None:
    """Serve the guests until all have a status, or one is lost, or it is late."""
    ends = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for guest in guests:
            for channel, read in ((guest.output, guest.read_output),
                                  (guest.console, guest.read_console)):
                selector.register(channel, selectors.EVENT_READ, (guest, read))
        # A guest that is done stays up, as its peer may still need it.
        while any(guest.status is None for guest in guests):
            left = ends - time.monotonic()
            if left <= 0 or any(guest.failure for guest in guests):
                return
            for key, _ in selector.select(left):
                guest, read = key.data
                if not read():
                    selector.unregister(key.fileobj)
                    guest.channels_open -= 1
                    if guest.channels_open == 0:
                        guest.died()


def conclude(guests: List[Guest], options: argparse.Namespace) -> int:
    if any(guest.failure for guest in guests):
        why = "still at work when the other guest failed; killed"
    else:
        why = f"not done after {options.deadline * multiplier():g} s; killed"
    for guest in guests:
        guest.fail(STATUS_LOST, why)
        guest.report(options.verbose)
    return max(guest.status for guest in guests)


def copy_tree(source: Path, target: Path) -> None:
    """Copy folders, files and links: a fifo or socket would block or fail."""
    def special(where: str, names: List[str]) -> List[str]:
        kinds = {name: os.lstat(os.path.join(where, name)).st_mode for name in names}
        return [name for name, kind in kinds.items() if not (
            stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind))]

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=special)


def copy_results(guests: List[Guest], folder: Path) -> None:
    for guest in guests:
        target = folder / str(guest.index) if len(guests) > 1 else folder
        copy_tree(guest.share / "results", target)


def remove_orphans() -> None:
    """Folders of runs that were killed by SIGKILL: no process holds their lock."""
    pattern = os.path.join(glob.escape(tempfile.gettempdir()), TEMPORARY + "*")
    for path in glob.glob(pattern):
        try:
            # The minute is for a run that has made its folder, not yet its lock.
            if time.time() - os.stat(path).st_mtime > 60:
                with locked(path):
                    shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # in use, or someone else's


class locked:
    """Hold the lock of a folder; BlockingIOError if someone else does."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> None:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.descriptor)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def run(options: argparse.Namespace) -> int:
    remove_orphans()
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    guests: List[Guest] = []
    try:
        with locked(str(folder)):
            start_guests(options, folder, guests)
            watch(guests, options.deadline * multiplier())
            status = conclude(guests, options)
            for guest in guests:
                guest.kill()
            if options.results:
                copy_results(guests, options.results)
            return status
    finally:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for guest in guests:
            guest.kill()
        if options.keep:
            copy_tree(folder, options.keep)
        shutil.rmtree(folder, ignore_errors=True)


ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def parse_options(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/vm/run.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--guests", type=int, choices=(1, 2), default=1)
    add("--mortal", action="store_true",
        help="the second guest may end at any time once its command has begun")
    add("--net", choices=("dummy", "veth"), default="dummy",
        help="of a single guest; see README.md")
    add("--deadline", type=float, default=120, metavar="SECONDS",
        help="for all of it, boot included (default: 120); multiplied by "
             f"${MULTIPLIER}, as deadlines in the guest are")
    add("--memory", type=int, default=1024, metavar="MiB",
        help="of each guest (default: 1024)")
    add("--env", action="append", default=[], metavar="NAME=VALUE")
    add("--results", type=Path, metavar="DIR",
        help="copy what the command wrote to $VM_RESULTS there")
    add("--keep", type=Path, metavar="DIR",
        help="copy the run's files there: console logs, job scripts, results")
    add("--verbose", action="store_true", help="say how long the boot took")
    add("--check", action="store_true",
        help="start nothing: fail, and say why, if something is missing")
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND [ARG...]")
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command and not options.check:
        parser.error("no COMMAND")
    for setting in options.env:
        if "=" not in setting:
            parser.error(f"--env {setting} is not NAME=VALUE")
    if options.guests > 1 and options.net != "dummy":
        parser.error("--net is for a single guest")
    return options


def main(arguments: List[str]) -> int:
    options = parse_options(arguments)
    for number in ENDING_SIGNALS:
        signal.signal(number, end)
    try:
        if options.check:
            check_programs()
            find_image()
            return 0
        return run(options)
    except BrokenPipeError:
        # As cat would die; and the interpreter must not flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except (Problem, OSError) as problem:
        say(str(problem))
        return STATUS_NO_GUEST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
