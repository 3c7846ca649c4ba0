#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sennit cp and serve: what arrives, and what is lost when something goes wrong: nothing.

usage: copy.py SENNIT LIAR DISK_WATCH
"""

import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from kit import (SECONDS, Cases, Server, Skip, Tool, environment, expect, objects,
                 wait_until)

MIB = 1 << 20
PART = ".sennit-part"
# Where the loss of a peer is waited for. A busy machine is not to be taken for a lost one.
SOON = ["--detect-time", "2s"]
# Where it is not to be what helps.
NOT_SOON = ["--detect-time", "60s"]


def part_of(path: Path) -> Path:
    return path.parent / f".{path.name}{PART}"


def noise(length: int, seed: int = 1) -> bytes:
    """Bytes that do not repeat."""
    return random.Random(seed).randbytes(length)


class Bench:
    """A server, the folder it serves, and a folder of ours."""

    def __init__(self, tool: Tool, folder: Path, *words, **options) -> None:
        self.tool = tool
        self.here, self.there = folder / "here", folder / "there"
        for place in (self.here, self.there):
            place.mkdir(exist_ok=True)
        self.server = Server(tool, "serve", self.there, *words, **options)
        self.at = f"{self.server.host}:"
        self.port = ["--port", str(self.server.port)]

    def cp(self, *words, **options):
        return self.tool("cp", *self.port, *words, **options)

    def start(self, *words, **options):
        return self.tool.start("cp", *self.port, *words, **options)

    def summary(self, *words) -> dict:
        return objects(self.cp("--json", *words).stdout)[-1]


@contextmanager
def bench(tool: Tool, *words, **options):
    with tempfile.TemporaryDirectory() as folder:
        place = Bench(tool, Path(folder), *words, **options)
        with place.server:
            yield place


def tree(folder: Path) -> dict:
    """All files and folders below, and what is in them."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
            for p in folder.rglob("*") if not p.is_symlink()}


def differs(left: Path, right: Path):
    if tree(left) != tree(right):
        yield f"{sorted(tree(left))} is not {sorted(tree(right))}, or has other bytes"


#
# What works
#

def to_and_fro(tool: Tool):
    """files of all sizes go there and come back"""
    with bench(tool) as b:
        for size in (0, 1, 4096, 256 * 1024, 256 * 1024 + 1, 5 * MIB + 3):
            (b.here / f"f{size}").write_bytes(noise(size))
        files = sorted(b.here.iterdir())
        yield from expect(b.cp(*files, b.at), 0, f"{len(files)} files, ")
        yield from differs(b.here, b.there)
        back = b.here.parent / "back"
        back.mkdir()
        yield from expect(b.cp(*[b.at + f.name for f in files], back), 0, "SHA-256 verified")
        yield from differs(b.there, back)


def names(tool: Tool):
    """into a folder that is there, or under a new name"""
    with bench(tool) as b:
        (b.here / "a").write_text("a")
        (b.there / "sub").mkdir()
        for target, where in (("sub", "sub/a"), ("sub/", "sub/a"), ("b", "b"),
                              ("sub/c", "sub/c"), ("/d", "d")):
            yield from expect(b.cp(b.here / "a", b.at + target), 0)
            if not (b.there / where).is_file():
                yield f"{target}: there is no {where}"
        yield from expect(b.cp(b.here / "a", b.at + "none/"), 1, err="no such folder")
        yield from expect(b.cp(b.here / "a", b.at + "none/x"), 1, err="No such file")
        (b.here / "a2").write_text("a2")
        yield from expect(b.cp(b.here / "a", b.here / "a2", b.at + "b"), 1, err="is no folder")
        yield from expect(b.cp(b.at + "b", b.here / "new"), 0)
        if (b.here / "new").read_text() != "a":
            yield "new"
        yield from expect(b.cp(b.at + "b", f"{b.here}/none/"), 1, err="create the folder first")


def folders(tool: Tool):
    """folders with all that is in them, without links and the like, which is said"""
    with bench(tool) as b:
        top = b.here / "top"
        (top / "x/y/z").mkdir(parents=True)
        (top / "empty").mkdir()
        (top / "x/y/z/deep").write_bytes(noise(100000))
        (top / "x/one").write_text("1")
        yield from expect(b.cp(top, b.at), 0, "2 files")
        yield from differs(b.here, b.there)
        (top / "link").symlink_to("/etc/passwd")
        os.mkfifo(top / "pipe")
        done = b.cp(top, b.at + "again")
        yield from expect(done, 3, "2 not copied", "link is a symbolic link and was skipped")
        yield from expect(done, 3, err="pipe is a pipe and was skipped")
        yield from differs(b.there / "top", b.there / "again")
        yield from expect(b.cp(b.at + "again", b.here / "back"), 0)
        yield from differs(b.there / "again", b.here / "back")
        everything = b.here / "everything"
        everything.mkdir()
        yield from expect(b.cp(b.at, everything), 0)
        yield from differs(b.there, everything)


def odd_names(tool: Tool):
    """names with anything in them are copied, and do nothing to a terminal"""
    with bench(tool) as b:
        names = [b"a\xffb", "\u00e4 b:c".encode(), b"x\x1b[31my", b"-", b"n" * 255]
        for name in names:
            with open(os.path.join(os.fsencode(b.here), name), "wb") as file:
                file.write(name)
        yield from expect(b.cp(b.here, b.at), 0, "5 files")
        yield from differs(b.here, b.there / "here")
        os.mkfifo(b.here / "p\x1b[31mq")
        done = b.cp(b.here, b.at)
        yield from expect(done, 3, err="p?[31mq is a pipe")


def pipes(tool: Tool):
    """standard input and output"""
    with bench(tool) as b:
        yield from expect(b.cp("-", b.at + "f", stdin="from a pipe\n"), 0, "1 file,")
        done = b.cp(b.at + "f", "-")
        yield from expect(done, 0, "from a pipe\n")
        if done.stdout != "from a pipe\n" or done.stderr:
            yield f"{done.stdout} {done.stderr}"
        (b.there / "folder").mkdir()
        yield from expect(b.cp(b.at + "folder", "-"), 1, err="only a file can go there")


def rights_and_times(tool: Tool):
    """files have the rights that they had, less the mask, and with -t their times"""
    with bench(tool) as b:
        file = b.here / "f"
        file.write_text("x")
        file.chmod(0o751)
        os.utime(file, ns=(0, 1234567890_123456789))
        yield from expect(b.cp("-t", file, b.at), 0)
        found = (b.there / "f").stat()
        mask = os.umask(0)
        os.umask(mask)
        if found.st_mode & 0o7777 != 0o751 & ~mask or \
                found.st_mtime_ns != 1234567890_123456789:
            yield str(found)


def progress(tool: Tool):
    """progress with rate and ETA on a terminal, and gone at the end; none in a pipe"""
    with bench(tool) as b:
        big = b.here / "big"
        with big.open("wb") as file:
            file.truncate(96 * MIB)
        out, shown, status = tool.on_terminal("cp", *b.port, big, b.at)
        if status or "1 file, 96 MiB" not in out or not re.search(
                r"\d+%  .* of 96 MiB  .*b/s  ETA .*  big", shown):
            yield f"{status}: {out}{shown[:400]!r}"
        if not re.search("\r +\r$", shown):
            yield f"something is left: {shown[-200:]!r}"
        done = b.cp(big, b.at)
        yield from expect(done, 0)
        if done.stderr or "\r" in done.stdout:
            yield f"{done.stdout!r} {done.stderr!r}"


def many_at_once(tool: Tool):
    """several hosts at the same time"""
    with bench(tool) as b:
        for i in range(4):
            (b.here / f"f{i}").write_bytes(noise(3 * MIB, i * 1000))
        children = [b.start(b.here / f"f{i}", b.at) for i in range(4)]
        for child in children:
            out, err = child.communicate(timeout=SECONDS)
            if child.returncode:
                yield f"{out}{err}"
        yield from differs(b.here, b.there)


#
# Going on
#

def resumes(tool: Tool):
    """what is there from before is used, if it is the same"""
    with bench(tool) as b:
        data = noise(3 * MIB)
        (b.here / "f").write_bytes(data)
        part_of(b.there / "f").write_bytes(data[:2 * MIB])
        found = b.summary(b.here / "f", b.at)
        if found["bytes_resumed"] != 2 * MIB or found["bytes_moved"] != MIB:
            yield str(found)
        part_of(b.here / "back").write_bytes(data[:MIB])
        found = b.summary(b.at + "f", b.here / "back")
        if found["bytes_resumed"] != MIB or found["bytes_moved"] != 2 * MIB:
            yield str(found)
        if {(b.there / "f").read_bytes(), (b.here / "back").read_bytes()} != {data}:
            yield "other bytes"
        if list(b.there.glob(f".*{PART}")):
            yield "something is left"


def folders_again(tool: Tool):
    """a folder again: what is the same is not sent, what differs is"""
    with bench(tool) as b:
        for i in range(4):
            (b.here / f"f{i}").write_bytes(noise(10000, i))
        first = b.summary(b.here, b.at)
        (b.here / "f1").write_bytes(noise(10000, 99))
        (b.here / "f2").write_bytes(noise(9999, 2))
        (b.there / "here/f3").chmod(0o600)
        (b.here / "f3").chmod(0o644)
        again = b.summary(b.here, b.at)
        if first["bytes_moved"] != 40000 or again["bytes_moved"] != 19999 or \
                again["bytes_resumed"] != 20000:
            yield f"{first} {again}"
        yield from differs(b.here, b.there / "here")
        if (b.there / "here/f3").stat().st_mode & 0o777 != 0o644:
            yield "it has the rights that it had"
        (b.there / "here/f1").write_bytes(noise(10000, 5))
        back = b.summary(b.at + "here", b.here.parent)
        if back["bytes_moved"] != 10000:
            yield str(back)
        yield from differs(b.here, b.there / "here")


def does_not_mix(tool: Tool):
    """what is there from before is not used if it is something else, or longer"""
    with bench(tool) as b:
        data = noise(3 * MIB)
        (b.here / "f").write_bytes(data)
        for other in (noise(2 * MIB, 7), data[:MIB] + b"x" + data[MIB + 1:2 * MIB],
                      data + b"more"):
            part_of(b.there / "f").write_bytes(other)
            found = b.summary(b.here / "f", b.at)
            if found["bytes_resumed"] or (b.there / "f").read_bytes() != data:
                yield f"{len(other)}: {found}"


def large_file(folder: Path, mib: int) -> Path:
    """Of many bytes that take no room."""
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(mib * MIB)
        file.seek(mib * MIB // 2)
        file.write(noise(4096))
    return path


def caught_under_way(b: Bench, detect, source, target, part: Path, mib: int):
    """A copy that was stopped while it had written something, and not all."""
    child = b.start(*detect, source, target)
    wait_until(lambda: (part.exists() and part.stat().st_size > MIB) or
               child.poll() is not None, "the first bytes")
    child.send_signal(signal.SIGSTOP)
    if child.poll() is None and part.exists() and part.stat().st_size < mib * MIB // 2:
        return child
    child.kill()
    child.communicate()
    return None


def catch(tool: Tool, direction: str, detect=SOON):
    """Tries with larger files until one is caught."""
    for mib in (96, 384, 1536):
        with bench(tool, *detect) as b:
            there = direction == "there"
            source = large_file(b.here if there else b.there, mib)
            target = (b.there if there else b.here) / "large"
            child = caught_under_way(
                b, detect, source if there else b.at + "large", b.at if there else b.here,
                part_of(target), mib)
            if child:
                yield b, child, source, target
                return
    raise Skip("this machine copies 1.5 GiB before it can be stopped")


def client_killed(tool: Tool):
    """a client that is killed while it sends: what came is kept and used"""
    for b, child, source, target in catch(tool, "there"):
        child.kill()
        child.communicate()
        b.server.wait_for("of it were kept; copy it again to resume")
        if target.exists():
            yield "half a file has its name"
        kept = part_of(target).stat().st_size
        found = b.summary(source, b.at)
        if found["bytes_resumed"] != kept or target.read_bytes() != source.read_bytes():
            yield f"{kept}: {found}"


def killed_and_again(tool: Tool):
    """a client that was killed, and at once the same again: it goes on, and is not refused"""
    for b, child, source, target in catch(tool, "there", NOT_SOON):
        kept = part_of(target).stat().st_size
        child.kill()
        child.communicate()
        found = b.summary(*NOT_SOON, source, b.at)
        if found["status"] or found["bytes_resumed"] < kept or \
                target.read_bytes() != source.read_bytes():
            yield f"{kept}: {found}"


def interrupted_and_again(tool: Tool):
    """a client that is interrupted says goodbye and how to go on, and the same again does"""
    for number in (signal.SIGINT, signal.SIGTERM):
        for b, child, source, target in catch(tool, "there", NOT_SOON):
            child.send_signal(number)
            child.send_signal(signal.SIGCONT)
            _, err = child.communicate(timeout=SECONDS)
            if child.returncode != -number or b"interrupted" not in err or \
                    b"run the same command again to resume" not in err:
                yield f"{number}: status {child.returncode}: {err.decode()}"
            b.server.wait_for("the client was interrupted")
            kept = part_of(target).stat().st_size
            found = b.summary(*NOT_SOON, source, b.at)
            if found["bytes_resumed"] != kept or \
                    target.read_bytes() != source.read_bytes():
                yield f"{number}: {kept}: {found}"


def interrupted_at_a_pipe(tool: Tool):
    """a client that waits for its standard input can be interrupted"""
    with bench(tool, *NOT_SOON) as b:
        child = b.start(*NOT_SOON, "-", b.at + "f", stdin=subprocess.PIPE)
        child.stdin.write(noise(MIB))
        child.stdin.flush()
        waits_for(part_of(b.there / "f"), MIB)
        child.send_signal(signal.SIGTERM)
        if child.wait(60) != -signal.SIGTERM:
            yield f"status {child.returncode}"
        child.communicate()
        yield from expect(b.cp("-", b.at + "f", stdin="other"), 0)


def client_killed_receiving(tool: Tool):
    """a client that is killed while it receives: the same"""
    for b, child, source, target in catch(tool, "back"):
        child.kill()
        child.communicate()
        if target.exists():
            yield "half a file has its name"
        kept = part_of(target).stat().st_size
        found = b.summary(b.at + "large", b.here)
        if found["bytes_resumed"] != kept or target.read_bytes() != source.read_bytes():
            yield f"{kept}: {found}"


def server_killed(tool: Tool):
    """a server that is killed: the client says so, and goes on with the next server"""
    for b, child, source, target in catch(tool, "there"):
        b.server.kill()
        child.send_signal(signal.SIGCONT)
        _, err = child.communicate(timeout=SECONDS)
        if child.returncode != 1 or b"connection lost" not in err or \
                b"run the same command again to resume" not in err:
            yield f"{child.returncode}: {err.decode()}"
        kept = part_of(target).stat().st_size
        with Server(tool, "serve", b.there) as server:
            found = objects(tool("cp", "--json", "--port", server.port, source,
                                 f"{server.host}:").stdout)[-1]
            if found["bytes_resumed"] != kept or \
                    target.read_bytes() != source.read_bytes():
                yield f"{kept}: {found}"


def changed(tool: Tool):
    """a file that changes while it is copied is not taken, and the old one stays"""
    for b, child, source, target in catch(tool, "there"):
        target.write_text("old")
        with source.open("ab") as file:
            file.write(b"more")
        child.send_signal(signal.SIGCONT)
        _, err = child.communicate(timeout=SECONDS)
        if child.returncode != 1 or b"changed while it was copied" not in err:
            yield f"{child.returncode}: {err.decode()}"
        if target.read_text() != "old" or part_of(target).exists():
            yield "it was taken"


def waits_for(path: Path, length: int) -> None:
    wait_until(lambda: path.exists() and path.stat().st_size >= length, str(path))


def two_writers(tool: Tool):
    """two copies to one name: the second is told, and nothing is mixed"""
    with bench(tool) as b:
        first = b.start("-", b.at + "f", stdin=subprocess.PIPE)
        first.stdin.write(noise(MIB))
        first.stdin.flush()
        waits_for(part_of(b.there / "f"), MIB // 2)
        yield from expect(b.cp("-", b.at + "f", stdin="other"), 1,
                          err="another client is copying to it")
        first.communicate(timeout=SECONDS)
        if first.returncode or (b.there / "f").read_bytes() != noise(MIB):
            yield "the first has lost"


#
# Many files
#

def small_files(folder: Path, count: int, seed: int) -> None:
    """In several folders, with bytes that the seed decides."""
    for i in range(count):
        path = folder / f"d{i % 5}/f{i}"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(noise(i % 97, seed * 10000 + i))


def syncs_are_shared(tool: Tool, watch: str):
    """small files are on disk before they take their names, and wait for the disk together"""
    count = 400
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        preload = {"LD_PRELOAD": watch, "DISK_WATCH": str(log),
                   "ASAN_OPTIONS": "verify_asan_link_order=0:" +
                                   os.environ.get("ASAN_OPTIONS", "")}
        with bench(tool, env=environment(**preload)) as b:
            small_files(b.here, count, 1)
            yield from expect(b.cp(b.here, b.at), 0, f"{count} files, ")
            events = log.read_text().splitlines()
            yield from differs(b.here, b.there / "here")
        renamed = [e for e in events if e.startswith("rename")]
        synced = [e for e in events if e.startswith("sync")]
        early = [e for e in renamed if e.endswith("unsynced")]
        if len(renamed) != count or early:
            yield f"{len(renamed)} of {count} were renamed, unsynced {early[:3]}"
        # A busy machine makes more and smaller groups.
        if len(synced) > count // 4:
            yield f"{len(synced)} waits for the disk"
        if events[-1] != "sync 0":
            yield f"the client was told before names were on disk: {events[-1]}"


def status_of(err: bytes) -> int:
    """What a client ends with that was in the way of another one, by what it says."""
    if b"another client is copying to it" in err:
        return 3
    # On a busy host a client may not get a processor for the second that it has to answer.
    return 1 if b"another one has taken over the file" in err else 0


def two_of_one_tree(tool: Tool):
    """two copies of the same folder: each ends, and every file is whole"""
    with bench(tool) as b:
        small_files(b.here, 300, 1)
        children = [b.start(b.here, b.at) for _ in range(3)]
        for child in children:
            _, err = child.communicate(timeout=SECONDS)
            if child.returncode != status_of(err):
                yield f"status {child.returncode}: {err.decode()}"
        yield from expect(b.cp(b.here, b.at), 0, "300 files, ")
        yield from differs(b.here, b.there / "here")


def two_crosswise(tool: Tool):
    """two hosts that have what the other one wants, from before: neither waits for ever"""
    with bench(tool) as b:
        for name in ("a", "c"):
            for path, size in ((b.here / name, 96 * MIB + 1),
                               (part_of(b.there / name), 96 * MIB)):
                with path.open("wb") as file:
                    file.truncate(size)
        children = [b.start(b.here / first, b.here / second, b.at)
                    for first, second in ("ac", "ca")]
        for child in children:
            _, err = child.communicate(timeout=SECONDS)
            if child.returncode not in (0, 1, 3) or \
                    (child.returncode and not status_of(err)):
                yield f"status {child.returncode}: {err.decode()}"
        yield from expect(b.cp(b.here / "a", b.here / "c", b.at), 0, "2 files, ")
        yield from differs(b.here, b.there)


def arrived(wanted: dict, folder: Path) -> int:
    """How many files are there as they are to be."""
    return sum(data is not None and (folder / path).exists() and
               (folder / path).read_bytes() == data for path, data in wanted.items())


def killed_among_many(tool: Tool):
    """a server killed among many files: each name is a whole file, the old or the new one"""
    count, rng = 300, random.Random()
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), Path(name) / "source"
        there = folder / "there/source"
        small_files(there, count, 1)
        for seed in range(2, 5):
            small_files(source, count, seed)
            before, wanted, least = tree(there), tree(source), rng.randrange(1, count)
            b = Bench(tool, folder)
            with b.server:
                child = b.start(*SOON, source, b.at)
                wait_until(lambda: child.poll() is not None or
                           arrived(wanted, there) >= least, "the first files")
                b.server.kill()
                child.communicate(timeout=SECONDS)
            found = tree(there)
            for path, data in wanted.items():
                if found.get(path) not in (before.get(path), data):
                    yield f"killed at {least}: {path} is neither the old nor the new file"
            b = Bench(tool, folder)
            with b.server:
                yield from expect(b.cp(source, b.at), 0, f"{count} files, ")
            yield from differs(source, there)


#
# What cannot be written
#

def file_limit(tool: Tool):
    """a server that cannot write more says so, and the rest goes on"""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

    with bench(tool, preexec_fn=limit) as b:
        (b.here / "a").write_bytes(noise(8 * MIB))
        (b.here / "b").write_bytes(noise(1000))
        (b.there / "a").write_text("old")
        done = b.cp(b.here / "a", b.here / "b", b.at)
        yield from expect(done, 3, "1 file, ", "a: writing it failed: File too large; 1 MiB")
        if (b.there / "a").read_text() != "old" or not (b.there / "b").exists():
            yield "the old file is gone, or the next did not come"


def descriptor_limit(tool: Tool):
    """limits on open files do not keep a server from taking files in many folders"""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    for limits in ((128, hard), (512, 512)):
        with bench(tool, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                               limits)) as b:
            for i in range(600):
                path = b.here / f"d{i}/f"
                path.parent.mkdir()
                path.write_bytes(noise(10, i))
            yield from expect(b.cp(b.here, b.at), 0, "600 files, ")
            yield from differs(b.here, b.there / "here")


@contextmanager
def small_disk(folder: Path):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
                          capture_output=True, text=True)
    if done.returncode:
        raise Skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def full_disk(tool: Tool):
    """a full disk: said, kept, and gone on with when there is room"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "there").mkdir()
        with small_disk(folder / "there"):
            b = Bench(tool, folder)
            with b.server:
                (b.there / "filler").write_bytes(bytes(MIB))
                (b.here / "f").write_bytes(noise(3 * MIB // 2))
                done = b.cp(b.here / "f", b.at)
                yield from expect(done, 1, err="No space left on device; ")
                yield from expect(done, 1, err="of it were kept")
                (b.there / "filler").unlink()
                found = b.summary(b.here / "f", b.at)
                if not found["bytes_resumed"] or \
                        (b.there / "f").read_bytes() != noise(3 * MIB // 2):
                    yield str(found)


def rights(tool: Tool):
    """files and folders without rights are named, and the rest goes on"""
    def drop():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    raised = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("there/closed", "there/open", "here"):
            (folder / part).mkdir(parents=True)
        (folder / "there/closed/f").write_text("secret")
        (folder / "there/open").chmod(0o777)
        (folder / "there/closed").chmod(0o700 if raised else 0)
        (folder / "there/open/unreadable").write_text("secret")
        (folder / "there/open/unreadable").chmod(0o600 if raised else 0)
        (folder / "there/open/readable").write_text("known")
        (folder / "there").chmod(0o755 if raised else 0o555)
        try:
            b = Bench(tool, folder, preexec_fn=drop if raised else None)
        except (RuntimeError, PermissionError, subprocess.SubprocessError):
            raise Skip("the user nobody may not run the tool where it is")
        with b.server:
            done = b.cp(b.at + "open", b.here)
            yield from expect(done, 3, "1 file, ", "unreadable: Permission denied")
            (b.here / "new").write_text("new")
            yield from expect(b.cp(b.here / "new", b.at), 1, err="Permission denied")
            yield from expect(b.cp(b.here / "new", b.at + "closed/"), 1,
                              err="Permission denied")
            yield from expect(b.cp(b.here / "new", b.at + "open"), 0)
        (folder / "there").chmod(0o755)
        (folder / "there/closed").chmod(0o700)


def read_only(tool: Tool):
    """a server that only gives"""
    with bench(tool, "--read-only") as b:
        (b.here / "f").write_text("x")
        (b.there / "g").write_text("y")
        yield from expect(b.cp(b.here / "f", b.at), 1, err=": /: this server")
        yield from expect(b.cp(b.at + "g", b.here), 0)
        if (b.there / "f").exists():
            yield "it took it"


# Which rights, and where
#

def paths(tool: Tool):
    """nothing leads out of the served folder"""
    with bench(tool) as b:
        outside = b.here.parent / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret")
        (b.there / "out").symlink_to(outside)
        (b.there / "file").symlink_to(outside / "secret")
        (b.here / "f").write_text("x")
        for path in ("../outside/secret", "out/secret", "file", "a/../../outside/secret",
                     str(outside / "secret"), "..", "./../outside/secret"):
            done = b.cp(b.at + path, b.here / "got")
            yield from expect(done, 1)
            if (b.here / "got").exists():
                yield f"{path} leads out"
        for path in ("../outside/", "../outside/new", "out/", "out/new", "out", "..",
                     str(outside) + "/new"):
            yield from expect(b.cp(b.here / "f", b.at + path), 1)
        if sorted(os.listdir(outside)) != ["secret"]:
            yield f"something came out: {os.listdir(outside)}"
        yield from expect(b.cp(b.here / "f", b.at + "file"), 1, err="a symbolic link of this")
        if (outside / "secret").read_text() != "secret":
            yield "a link was written through"
        yield from expect(b.cp(b.here / "f", b.at + f".f{PART}"), 1, err="no path below")


def parts_in_the_way(tool: Tool):
    """what stands where a part goes is not written through"""
    with bench(tool) as b:
        outside = b.here.parent / "outside"
        outside.write_text("old")
        (b.here / "f").write_text("new")
        part_of(b.there / "f").symlink_to(outside)
        yield from expect(b.cp(b.here / "f", b.at), 1, err="cannot write it")
        part_of(b.there / "f").unlink()
        os.link(outside, part_of(b.there / "f"))
        yield from expect(b.cp(b.here / "f", b.at), 1, err="in the way and is not a part file")
        if outside.read_text() != "old":
            yield "it was written through"


def secrets(tool: Tool):
    """a client without the secret gets nothing"""
    with tempfile.TemporaryDirectory() as name:
        key, other = Path(name) / "key", Path(name) / "other"
        key.write_text("0123456789abcdef")
        other.write_text("0123456789abcdeX")
        for file in (key, other):
            file.chmod(0o600)
        with bench(tool, "--secret-file", key) as b:
            (b.there / "f").write_text("x")
            for words in ([], ["--secret-file", other]):
                yield from expect(b.cp(*words, b.at + "f", b.here), 1,
                                  err="give both ends a --secret-file")
            if list(b.here.iterdir()):
                yield "it came all the same"
            yield from expect(b.cp("--secret-file", key, b.at + "f", b.here), 0)
            if "every host that reaches this port" in b.server.said():
                yield b.server.said()


def rejected_secrets(tool: Tool):
    """clients with a wrong secret, or none, are in the log, which they cannot flood"""
    pattern = r"port (\d+): 127\.\S+ was rejected: .*secret[^;\n]*(?:; (\d+) more)?"
    with tempfile.TemporaryDirectory() as name:
        key, other = Path(name) / "key", Path(name) / "other"
        for file, text in ((key, "0123456789abcdef"), (other, "0123456789abcdeX")):
            file.write_text(text)
            file.chmod(0o600)
        for carrier in ("cm", "tcp"):
            words = ["--carrier", carrier]
            with bench(tool, "-v", *words, "--secret-file", key) as b:
                at = (b.at if carrier == "cm" else "127.0.0.1:") + "f"
                began, tried = time.monotonic(), 0

                def lines():
                    return re.findall(pattern, b.server.said())

                def try_again():
                    for more in (["--secret-file", other], []):
                        yield from expect(b.cp(*words, *more, at, b.here), 1, err="secret")

                # One line for many, and the next one says how many.
                while not any(more for _, more in lines()):
                    yield from try_again()
                    tried += 2
                    if time.monotonic() > began + 60:
                        yield f"{carrier}: {b.server.said()}"
                        return
                told = sum(1 + int(more or 0) for _, more in lines())
                most = time.monotonic() - began + 2
                if not 2 <= told <= tried or len(lines()) > most or \
                        {port for port, _ in lines()} != {str(b.server.port)}:
                    yield f"{carrier}: {tried} tries: {b.server.said()}"


def advised_secret(tool: Tool):
    """the command that makes a secret makes one that nothing is wrong with"""
    said = tool("serve", "--help").stdout
    advice = re.search(r"\(umask 077; openssl rand -hex 32 >FILE\)",
                       re.sub(r"\s+", " ", said))
    if not advice:
        yield f"no advice: {said}"
        return
    if not shutil.which("openssl"):
        raise Skip("there is no openssl")
    with tempfile.TemporaryDirectory() as name:
        key = Path(name) / "key"
        subprocess.run(["sh", "-c", "umask 022; " + advice[0].replace("FILE", str(key))],
                       check=True)
        with bench(tool, "--secret-file", key) as b:
            (b.there / "f").write_text("x")
            done = b.cp("--secret-file", key, b.at + "f", b.here)
            yield from expect(done, 0)
            for said in (done.stderr, b.server.said()):
                if "chmod" in said:
                    yield said
        short = Path(name) / "short"
        short.write_text("x")
        short.chmod(0o600)
        yield from expect(tool("serve", "--secret-file", short, name), 1, err=advice[0])


def nothing_in_silence(tool: Tool):
    """what is not copied is told, also in JSON: a name that only parts have"""
    with bench(tool) as b:
        (b.here / "d").mkdir()
        (b.here / "d/.x.sennit-part").write_text("x")
        (b.here / "d/y").write_text("y")
        done = b.cp(b.here / "d", b.at)
        yield from expect(done, 3, "1 not copied", "d/.x.sennit-part is left over from")
        said = b.summary(b.here / "d", b.here / "none", b.at)
        if said["status"] != 3 or len(said["messages"]) != 2 or \
                "No such file" not in said["messages"][1]:
            yield str(said)
        (b.there / "d/.x.sennit-part").write_text("x")
        yield from expect(b.cp(b.at + "d", b.here / "back"), 3, "1 not copied")


def files_without_size(tool: Tool):
    """files of /proc, which seem to be empty, are not"""
    with bench(tool) as b:
        yield from expect(b.cp("/proc/version", b.at), 0)
        if (b.there / "version").read_bytes() != Path("/proc/version").read_bytes():
            yield f"{(b.there / 'version').read_bytes()}"


def strangers(tool: Tool):
    """a client that connects and says nothing takes no other's place"""
    with bench(tool, "--carrier", "tcp", "--connections", "2") as b:
        (b.here / "f").write_text("x")
        silent = [socket.create_connection(("127.0.0.1", b.server.port)) for _ in range(20)]
        for other in silent[::2]:
            other.send(b"GET / HTTP/1.0\r\n\r\n")
        done = b.cp("--carrier", "tcp", b.here / "f", "127.0.0.1:")
        for other in silent:
            other.close()
        yield from expect(done, 0, "1 file, ")


def too_many(tool: Tool):
    """one more than the server takes is told so"""
    with bench(tool, "--connections", "1") as b:
        first = b.start("-", b.at + "f", stdin=subprocess.PIPE)
        first.stdin.write(noise(MIB))
        first.stdin.flush()
        waits_for(part_of(b.there / "f"), MIB // 2)
        yield from expect(b.cp("-", b.at + "g", stdin="x"), 1, err="limit of connections")
        first.communicate(timeout=SECONDS)
        if first.returncode:
            yield f"the first: {first.returncode}"
        wait_until(lambda: b.cp("-", b.at + "g", stdin="x").returncode == 0, "a place")


def liars(tool: Tool, liar: str):
    """peers that lie, at either end, get and do nothing"""
    with bench(tool) as b:
        (b.there / "f").write_text("old")
        cases = subprocess.run([liar], capture_output=True, text=True).stdout.split()
        for case in cases:
            if case.startswith("serve-"):
                continue
            done = subprocess.run([liar, case, b.server.host, str(b.server.port)],
                                  capture_output=True, text=True, env=environment(),
                                  timeout=SECONDS)
            if done.returncode:
                yield f"{case}: {done.stdout}{done.stderr}"
        if tree(b.there) != {"f": b"old"}:
            yield f"it did something: {tree(b.there)}"
        yield from expect(b.cp(b.at + "f", b.here), 0)
        for case in cases:
            if case.startswith("serve-"):
                yield from lying_server(tool, liar, case)


def lying_server(tool: Tool, liar: str, case: str):
    child = subprocess.Popen([liar, case], stdout=subprocess.PIPE, text=True,
                             env=environment())
    host, port = child.stdout.readline().split()
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "a/b"
        target.mkdir(parents=True)
        (target / "f").write_text("old")
        done = tool("cp", "--port", port, f"{host}:f", target)
        status = 4 if case == "serve-damaged" else 1
        if done.returncode != status or tree(Path(name)) != \
                {"a": None, "a/b": None, "a/b/f": b"old"}:
            yield f"{case}: {done.returncode} {done.stderr} {tree(Path(name))}"
    child.kill()
    child.communicate()


def nobody_reads_the_log(tool: Tool):
    """a server outlives the reader of its output"""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([tool.path, "serve", "--port", "0", folder], text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, env=environment())
        found = None
        while not found:
            found = re.search(r"on port (\d+), devices at ([^\s,]+)", child.stderr.readline())
        child.stderr.close()
        for path, status in (("../x", 1), ("x", 0)):  # the first is worth a line
            done = tool("cp", "--port", found[1], "-", f"{found[2]}:{path}", stdin="x")
            yield from expect(done, status)
        child.terminate()
        if child.wait(SECONDS):
            yield f"the server ends with {child.returncode}"


def stops(tool: Tool):
    """a server that is told to end does, with status 0"""
    with bench(tool) as b:
        first = b.start("-", b.at + "f", stdin=subprocess.PIPE)
        first.stdin.write(noise(MIB))
        first.stdin.flush()
        waits_for(part_of(b.there / "f"), MIB // 2)
        # Its terminal is closed.
        b.server.child.send_signal(signal.SIGHUP)
        status = b.server.child.wait(SECONDS)
        if status:
            yield f"status {status}: {b.server.said()}"
        _, err = first.communicate(timeout=SECONDS)
        if first.returncode != 1 or b"the server ends" not in err:
            yield f"{first.returncode}: {err.decode()}"


def ignore_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def survives_its_terminal(tool: Tool):
    """a server that was started by nohup goes on without its terminal, and ends by SIGTERM"""
    with bench(tool, preexec_fn=ignore_hangups) as b:
        b.server.child.send_signal(signal.SIGHUP)
        (b.here / "f").write_bytes(noise(MIB))
        yield from expect(b.cp(b.here / "f", b.at), 0, "1 file, ")
        if b.server.stop():
            yield "the server does not end well"


def main() -> None:
    tool, cases = Tool(sys.argv[1]), Cases()
    for case in (to_and_fro, names, folders, odd_names, pipes, rights_and_times, progress, many_at_once,
                 resumes, folders_again, does_not_mix, client_killed, client_killed_receiving, killed_and_again,
                 interrupted_and_again, interrupted_at_a_pipe,
                 server_killed, changed, two_writers,
                 two_of_one_tree, two_crosswise, killed_among_many, file_limit,
                 descriptor_limit, full_disk, rights,
                 read_only, paths, parts_in_the_way, secrets, rejected_secrets,
                 advised_secret, nothing_in_silence,
                 files_without_size, strangers, too_many,
                 nobody_reads_the_log, stops, survives_its_terminal):
        cases.run(case, tool)
    cases.run(liars, tool, sys.argv[2])
    cases.run(syncs_are_shared, tool, sys.argv[3])
    cases.report.end()


main()
