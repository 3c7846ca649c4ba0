#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tool's command line: help, wrong options, exit statuses, what goes where.

usage: cli.py SENNIT
"""

import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from kit import Cases, Skip, Tool, environment, expect, objects

EXECUTABLE = 0o755


def commands(tool: Tool) -> list:
    return [found["name"] for found in objects(tool("help", "--json").stdout)]


def helps(tool: Tool):
    """every command has a help that fits a terminal and shows examples"""
    for line in tool("help").stdout.splitlines():
        if len(line) > 80:
            yield f"{len(line)} columns: {line}"
    for name in commands(tool):
        done = tool(name, "--help")
        # A word that is put together of parts keeps its blanks.
        if re.search(r"\.(so|sennit-part)\w", done.stdout):
            yield f"{name}: two words have become one: {done.stdout}"
        yield from expect(done, 0, f"usage: sennit {name}")
        yield from expect(done, 0, "Examples:\n  ")
        yield from expect(done, 0, "--json")
        if done.stderr:
            yield f"{name}: stderr: {done.stderr}"
        if done.stdout != tool("help", name).stdout:
            yield f"sennit help {name} says something else"
        for line in done.stdout.splitlines():
            # What cannot be broken, a long option or example, stands by itself.
            if len(line) > 80 and len(line.split()) > 3 and not line.startswith("usage"):
                yield f"{name}: {len(line)} columns: {line}"


def helps_name_defaults(tool: Tool):
    """helps name defaults"""
    yield from expect(tool("ping", "--help"), 0, "(default: 18515)")
    yield from expect(tool("serve", "--help"), 0, "(default: 64)")


def whole_help(tool: Tool):
    """the help of all names every command and every exit status"""
    done = tool("--help")
    for name in commands(tool):
        yield from expect(done, 0, f"\n  {name} ")
    for status in range(5):
        yield from expect(done, 0, f"\n  {status}  ")
    yield from expect(tool("--version"), 0, "sennit ")


def nothing(tool: Tool):
    """no command at all is wrong usage, and stdout stays empty"""
    done = tool()
    yield from expect(done, 2, err="for help: sennit --help")
    if done.stdout:
        yield done.stdout


def nearest_command(tool: Tool):
    """a command that is nearly one gets a suggestion"""
    yield from expect(tool("pign"), 2, err='did you mean "sennit ping"')
    yield from expect(tool("strerr"), 2, err='did you mean "sennit strerror"')
    done = tool("qqqqqqqqqq")
    yield from expect(done, 2, err='unknown command "qqqqqqqqqq"')
    if "did you mean" in done.stderr:
        yield done.stderr


def wrong_options(tool: Tool):
    """options that are wrong are named, with what would be right"""
    for words, text in [
            (["info", "--devcies", "x"], "did you mean --devices?"),
            (["info", "-Z"], "unknown option -Z"),
            (["info", "--soft"], "--soft needs an argument"),
            (["ping", "-p"], "-p needs an argument"),
            (["info", "--soft", "perhaps"], "not one of default|auto|never|only"),
            (["info", "--config=1"], "--config takes no argument"),
            (["ping", "--port", "http", "x"], "not a number such as 4096"),
            (["ping", "--port", "65536", "x"], "from 0 to 65535"),
            (["ping", "--port", "-1", "x"], "not a number"),
            (["ping", "--port", "1k1", "x"], "not a number"),
            (["ping", "--port", "99999999999999999999", "x"], "not a number"),
            (["ping", "--setup-time", "soon", "x"], "not a time such as"),
            (["ping", "--setup-time", "1ms", "x"], "the minimum is 100 ms"),
            (["info", "more"], 'unexpected argument "more"'),
            (["strerror"], "missing argument"),
            (["ping"], "either --serve or the host"),
            (["ping", "--serve", "host"], "either --serve or the host"),
            (["cp", "a"], "missing argument"),
            (["cp", "a", "b"], "must be HOST:PATH"),
            (["cp", "h:a", "h:b"], "must be HOST:PATH"),
            (["cp", "h:a", "i:b", "."], "all sources must be on one host"),
            (["cp", ":a", "."], "no valid host before the colon"),
            (["cp", "", "h:"], "not a valid file name or HOST:PATH"),
            (["cp", "h:a", ""], "not a valid file name or HOST:PATH"),
            (["cp", "--port", "0", "h:a", "."], "--port 0 is for servers"),
            (["cp", "a/x", "b", "c/x/", "h:"], 'two sources are called "x"'),
            (["cp", "h:a/x", "h:x", "."], 'two sources are called "x"'),
            (["cp", "-", "-", "h:"], "two sources are called"),
            (["ping", ""], 'missing host name: ""'),
            (["ping", "--port", "0", "h"], "--port 0 is for servers"),
            (["perf", "-x", "3", "host"], "-x of perftest is called --gid here"),
            (["perf", "-x3", "host"], "-x of perftest is called --gid here"),
            (["perf", "--gid-index=3", "host"], "--gid-index of perftest is called --gid here"),
            (["perf", "-R", "host"], "-R is not needed: "),
            (["perf", "--rdma_cm", "host"], "--rdma_cm is not needed: "),
            (["perf", "--report_gbits", "host"], "--report_gbits is not needed: "),
            (["perf", "-i", "2", "host"], "--devices mlx5_0:2"),
            (["perf", ""], 'missing host name: ""'),
            (["perf", "--port", "99999"], "from 0 to 65535"),
            (["perf", "--local", "--op", "frob"], "not a list of these: all, write, "),
            (["perf", "--local", "--size", "1e9"], "neither a list such as 64,4k,1m"),
            (["cp", "[fe80::1", "."], "not [ADDRESS]:PATH"),
            (["cp", "h:a", "h:b", "-"], "only one file can go to standard output"),
            (["sim", "--seeds", "0"], "the minimum is 1")]:
        done = tool(*words)
        yield from expect(done, 2, err=text)
        yield from expect(done, 2, err=f"for help: sennit {words[0]} --help")
        if done.stdout:
            yield f"{words}: stdout: {done.stdout}"


def json_errors(tool: Tool):
    """with --json errors are objects, wherever it stands"""
    for words in (["ping", "--json", "--port", "x", "h"], ["ping", "--port", "x", "--json"]):
        (found,) = objects(tool(*words).stdout)
        if found["status"] != 2 or "--port" not in found["error"] or found["schema"] != 1:
            yield str(found)
    for words in (["--json"], ["frob", "--json"], ["", "--json"]):
        (found,) = objects(tool(*words).stdout)
        if found["status"] != 2 or "unknown command" not in found["error"]:
            yield str(found)
    (found,) = objects(tool("run", "--json", "--preload", tool.path,
                            "/nonexistent").stdout)
    if found["status"] != 127:
        yield str(found)
    (found,) = objects(tool("--version", "--json").stdout)
    if not found["version"]:
        yield str(found)
    (found,) = objects(tool("serve", "--json", "/nonexistent").stdout)
    if found["status"] != 1 or found["command"] != "serve":
        yield str(found)


def errnos(tool: Tool):
    """strerror knows errnos by number, sign and name"""
    for word in ("110", "-110", "etimedout", "ETIMEDOUT"):
        yield from expect(tool("strerror", word), 0, "ETIMEDOUT (110): Connection timed")
    yield from expect(tool("strerror", "ENODEV"), 0, "in sennit: no such RDMA device")
    yield from expect(tool("strerror", "EACCESS"), 2, err="did you mean EACCES?")
    yield from expect(tool("strerror", "0"), 2, err='there is no errno "0"')
    for words in (["RETRY_EXC_ERR"], ["ibv_wc_retry_exc_err"], ["--status", "12"]):
        yield from expect(tool("strerror", *words), 0, "SNT_WC_RETRY_EXC_ERR (status 12): ")
    yield from expect(tool("strerror", "IBV_WC_WR_FLUSH_ERR"), 0, "SNT_WC_FLUSHED (status 5)")
    yield from expect(tool("strerror", "--status", "99"), 2, err='there is no status "99"')
    (found,) = objects(tool("strerror", "--json", "FLUSHED").stdout)
    if found["name"] != "SNT_WC_FLUSHED" or found["completion_status"] != 5:
        yield str(found)
    numbers = [o["number"] for o in objects(tool("strerror", "--json", "1", "2").stdout)]
    if numbers != [1, 2]:
        yield str(numbers)


def information(tool: Tool):
    """info tells devices, GIDs with the chosen one, limits and settings"""
    done = tool("info", "--verbose")
    for word in ("soft0 port 1, soft, Ethernet, active", "MTU 4096", "GID 0   *", "chosen: ",
                 "qp_max", "memlock", "SENNIT_SOFT=only    (set)", "SENNIT_GID=auto"):
        yield from expect(done, 0, word)
    yield from expect(done, 0, "receive buffer: ")
    (found,) = objects(tool("info", "--json").stdout)
    device = found["devices"][0]
    if device["stats"]["receive_buffer_wanted"] != 4 << 20 or device["stats"]["resends"]:
        yield str(device["stats"])
    small = device["stats"]["receive_buffer"] < 4 << 20
    if ("sysctl -w net.core.rmem_max=4194304" in done.stdout.replace("\n", " ")) != small:
        yield f"advice on a buffer of {device['stats']['receive_buffer']}: {done.stdout}"
    if not device["limits"]["qp_max"] or sum(g["chosen"] for g in device["gids"]) != 1:
        yield str(device)
    settings = {s["name"]: s for s in found["settings"]}
    if settings["SENNIT_SOFT"]["value"] != "only" or not all(
            s["help"] for s in settings.values()):
        yield str(settings)


def soft_devices_have_no_speed(tool: Tool):
    """info says which way soft devices send, and gives them no speed"""
    for shm, path, words in (("on", "shm", "shared memory to soft devices of this user"),
                             ("off", "udp", "  path: UDP port 4791")):
        done = tool("info", env={"SENNIT_SOFT_SHM": shm})
        yield from expect(done, 0, words)
        yield from expect(done, 0, "no speed of its own")
        yield from expect(done, 0, "to be shared with other")
        if re.search(r"\d [GM]b/s", done.stdout):
            yield done.stdout
        (found,) = objects(tool("info", "--json", env={"SENNIT_SOFT_SHM": shm}).stdout)
        device = found["devices"][0]
        if device["path"] != path or device["speed_mbps"] or \
                not device["gids"][0]["netdev"]:
            yield str(device)


def information_without_devices(tool: Tool):
    """info without devices fails, says what to do, and tells the rest all the same"""
    if Path("/sys/class/infiniband").is_dir() and os.listdir("/sys/class/infiniband"):
        raise Skip("this host has RDMA devices")
    done = tool("info", "--soft", "never")
    yield from expect(done, 1, "SENNIT_SOFT=", "SENNIT_SOFT=only uses")
    (first, second) = objects(tool("info", "--soft", "never", "--json").stdout)
    if "no devices" not in first["error"] or not second["settings"]:
        yield f"{first} {second}"
    yield from expect(tool("info", "--config", "--soft", "never"), 0, "SENNIT_DEVICES=")


def names_of_options(tool: Tool):
    """what is wrong with devices is told by the names of options"""
    for words, text in ((["--gid", "x"], '--gid is "x"'),
                        (["--soft-addresses", "lo,lo"], "--soft-addresses names ")):
        yield from expect(tool("info", *words), 1, err=text)


def report_first(tool: Tool):
    """a report that cannot be written is told before anything is measured"""
    done = tool("perf", "--local", "--json", "--report", "/nonexistent/report.html")
    (found,) = objects(done.stdout)
    yield from expect(done, 1, err="/nonexistent/report.html: No such file")
    if found["status"] != 1:
        yield str(found)


def full_stdout(tool: Tool):
    """results that cannot be written are an error, which is told once"""
    for words in (["info"], ["info", "--json"], ["help", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([tool.path, *words], stdout=full, stderr=subprocess.PIPE,
                                  text=True, env=environment())
        if done.returncode != 1 or done.stderr.count("cannot write results") != 1 or \
                "No space left" not in done.stderr:
            yield f"{words}: {done.returncode}: {done.stderr}"


def closed_files(tool: Tool):
    """where stdout is closed, no file of the tool's own takes its place"""
    line = ["sh", "-c", 'exec "$@" <&- >&-', "sh", tool.path, "perf", "--local", "--size",
            "64", "--test", "bw", "--iterations", "1", "--runs", "1", "--warm-up", "0"]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, env=environment())
    # The end that talks to the other through a socket has nothing against it.
    if done.returncode != 1 or "Bad file descriptor" not in done.stderr or \
            "the other end" in done.stderr:
        yield f"{done.returncode}: {done.stderr}"


def plain_messages(tool: Tool):
    """what a message quotes cannot look like another one, or change a terminal"""
    for locale, shown in (("C.UTF-8", "a?b?[31m?\u00fc?x"), ("C", "a?b?[31m?????x")):
        done = subprocess.run([tool.path, b"a\nb\x1b[31m\xff\xc3\xbc\xc2\x9bx"],
                              stderr=subprocess.PIPE, env=environment(LC_ALL=locale))
        said = done.stderr.decode(errors="replace")
        if f'unknown command "{shown}' not in said or said.count("\n") != 2:
            yield f"{locale}: {said!r}"


def interrupted(tool: Tool):
    """an interrupted tool leaves no line of progress behind, and ends by the signal"""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([tool.path, "perf", "--local", "--size", "64", "--duration",
                              "60s"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=theirs, env=environment())
    os.close(theirs)
    shown = b""
    while b"run 1 of" not in shown:
        shown += os.read(ours, 4096)
    child.send_signal(signal.SIGINT)
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is gone
            break
    os.close(ours)
    if child.wait() != -signal.SIGINT or not re.search(rb"\r +\r$", shown):
        yield f"{child.returncode}: {shown[-200:]!r}"


def simulators(tool: Tool):
    """sim lists simulators and replays a seed of one"""
    build = Path(tool.path).resolve().parent.parent.parent
    if not (build / "tests/soft/traffic_sim").exists():
        raise Skip("there is no traffic_sim in this build")
    yield from expect(tool("sim"), 0, "traffic ")
    yield from expect(tool("sim", "traffic", "--seed", "7"), 0, "ok 1 - 1 seeds")
    yield from expect(tool("sim", "select_model", "--seeds", "3"), 0, "ok 1 - 3 seeds")
    (found,) = objects(tool("sim", "traffic", "--seed", "7", "--json").stdout)
    if not found["ok"] or found["seed"] != 7 or "ok 1 - 1 seeds" not in found["lines"]:
        yield str(found)
    yield from expect(tool("sim", "nonesuch"), 2, err="`sennit sim` lists them")
    yield from expect(tool("sim", "--build", "/tmp"), 1, err="no build folder of sennit")


def moved(tool: Tool, folder: Path) -> Tool:
    """The tool as if it were installed, with nothing beside it."""
    copy = folder / "bin/sennit"
    copy.parent.mkdir()
    shutil.copy(tool.path, copy)
    return Tool(str(copy))


def far_from_build(tool: Tool):
    """away from a build folder, sim and run say what is missing"""
    build = str(Path(tool.path).resolve().parent.parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        other = moved(tool, Path(folder))
        where = {"LD_LIBRARY_PATH": build}
        yield from expect(other("sim", env=where), 1, err="there are no simulators beside")
        yield from expect(other("run", "true", env=where), 1, err="--preload FILE")


def static_program() -> bytes:
    """The first bytes of a program without an interpreter: one part, to be loaded."""
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return ident + header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, 0)


def running(tool: Tool):
    """run says what LD_PRELOAD is, and refuses what it cannot reach"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "library.so").touch()
        preload = ["--preload", folder / "library.so"]
        yield from expect(tool("run", *preload, "--print", "ls", "--help"), 0,
                          f"LD_PRELOAD={folder}/library.so\n")
        done = tool("run", *preload, "--print", "ls", env={"LD_PRELOAD": "/nonexistent.so"})
        yield from expect(done, 0, f"LD_PRELOAD={folder}/library.so:/nonexistent.so\n")
        yield from expect(tool("run", *preload, "nonesuch"), 127, err="no such program")
        yield from expect(tool("run", *preload, ""), 127, err="no such program")
        yield from expect(tool("run", *preload, folder), 126, err="Permission denied")
        yield from expect(tool("run", *preload, folder / "library.so"), 126,
                          err="Permission denied")
        (folder / "static").write_bytes(static_program())
        (folder / "static").chmod(EXECUTABLE)
        yield from expect(tool("run", *preload, folder / "static"), 1, err="linked statically")
        (folder / "small").write_bytes(b"\x7fELF\x01\x01\x01" + bytes(45))
        (folder / "small").chmod(EXECUTABLE)
        yield from expect(tool("run", *preload, folder / "small"), 1, err="32-bit program")
        (folder / "raised").write_bytes(b"#!/bin/sh\n")
        (folder / "raised").chmod(0o4755)
        yield from expect(tool("run", *preload, folder / "raised"), 1, err="set-user-ID")
        yield from expect(tool("run", "--preload", folder / "none", "ls"), 1, err="No such file")


def running_for_real(tool: Tool):
    """run passes on arguments, settings and the exit status"""
    build = Path(tool.path).resolve().parent.parent.parent
    library = build / "preload/libsennit-preload.so"
    if not library.exists():
        raise Skip("there is no preload library in this build")
    if b"__asan_init" in library.read_bytes():
        raise Skip("a sanitizer in a preload library must be in the program, too")
    done = tool("run", "--devices", "soft0", "--", "sh", "-c",
                'echo "$1 $SENNIT_DEVICES"; exit 7', "sh", "--help")
    yield from expect(done, 7, "--help soft0\n")


def manuals(tool: Tool):
    """every command is a manual page; that of the tool has settings and examples"""
    page = tool("help", "--man").stdout
    for word in (".SH ENVIRONMENT\n", ".B SENNIT_DEVICES\n", ".SH EXAMPLES\n", "sennit (3)"):
        if word not in page:
            yield f"there is no {word!r} in sennit(1)"
    for name in commands(tool):
        page = tool("help", "--man", name).stdout
        if not page.startswith(f".TH SENNIT\\-{name} 1 "):
            yield f"{name}: {page[:60]}"
        for section in ("NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS"):
            if not re.search(f"^.SH {section}$", page, re.M):
                yield f"{name} has no {section}"


def main() -> None:
    tool, cases = Tool(sys.argv[1]), Cases()
    for case in (helps, helps_name_defaults, whole_help, nothing, nearest_command,
                 wrong_options, json_errors, errnos, information,
                 soft_devices_have_no_speed, information_without_devices, names_of_options, report_first, full_stdout,
                 closed_files, plain_messages, interrupted, simulators, far_from_build,
                 running, running_for_real, manuals):
        cases.run(case, tool)
    cases.report.end()


main()
