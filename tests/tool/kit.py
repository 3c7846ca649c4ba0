# SPDX-License-Identifier: MIT
"""What tests of the tool share: running it in pipes and on terminals, and a server."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "check"))
from tap import ROOT, Report  # noqa: E402,F401

# Nothing takes as long, on however busy a machine.
SECONDS = 60 * float(os.environ.get("SNT_TIMEOUT_MULTIPLIER", 1))

# A signal that is ignored, as by nohup(1) or in a job that a script runs in the background,
# is ignored by children as well, and tests send them.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def environment(**more: str) -> dict:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SENNIT_")}
    return {**kept, "SENNIT_SOFT": "only", "LC_ALL": "C.UTF-8", **more}


class Tool:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *words, stdin=None, env=None, **options):
        """One run with pipes: stdout, stderr, returncode."""
        return subprocess.run([self.path, *map(str, words)], input=stdin or "", text=True,
                              capture_output=True, timeout=SECONDS,
                              env=environment(**(env or {})), **options)

    def start(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([self.path, *map(str, words)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=environment(), **options)

    def on_terminal(self, *words) -> tuple:
        """One run with stderr on a terminal: stdout, what the terminal showed, status."""
        ours, theirs = pty.openpty()
        child = subprocess.Popen([self.path, *map(str, words)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=theirs, env=environment())
        os.close(theirs)
        shown = b""
        while True:
            ready, _, _ = select.select([ours], [], [], SECONDS)
            try:
                piece = os.read(ours, 4096) if ready else b""
            except OSError:  # the other side is gone
                piece = b""
            if not piece:
                break
            shown += piece
        os.close(ours)
        return child.communicate(timeout=SECONDS)[0].decode(), shown.decode(), child.returncode


class Server:
    """A `serve` or `ping --serve` on a port of its own, and what it said on stderr."""

    def __init__(self, tool: Tool, *words, **options) -> None:
        self.log = tempfile.TemporaryFile("w+b")
        options.setdefault("env", environment())
        self.child = subprocess.Popen(
            [tool.path, *map(str, words), "--port", "0"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self.log, **options)
        self.wait_for(r"listening on port (\d+), devices at (\S+?)(,|$)")
        found = re.search(r"listening on port (\d+), devices at ([^\s,]+)", self.said())
        self.port, self.host = int(found[1]), found[2]

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()

    def wait_for(self, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.said(), re.M) or
                   self.child.poll() is not None, f"the server to say {pattern}")
        if not re.search(pattern, self.said(), re.M):
            raise RuntimeError(f"the server has ended: {self.said()}")

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        status = self.child.wait(SECONDS)
        self.child.stdout.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        if self.child.poll() is None:
            self.stop()
        self.child.stdout.close()
        self.log.close()


def wait_until(condition, what: str) -> None:
    """Looks again and again; a machine that is busy is given time."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.002)


class Cases:
    """Functions as TAP cases: each returns, or yields, what speaks against it."""

    def __init__(self) -> None:
        self.report = Report()

    def run(self, function, *arguments) -> None:
        what = (function.__doc__ or function.__name__).strip().rstrip(".")
        try:
            problems = list(function(*arguments) or [])
        except Skip as skip:
            self.report.check(f"{what} # SKIP {skip}", [])
            return
        except Exception as error:  # a test that breaks has failed
            problems = [f"{type(error).__name__}: {error}"]
        self.report.check(what, problems)


class Skip(Exception):
    pass


def expect(done, status: int, out: str = "", err: str = ""):
    """What is wrong with a run: its status, or words that are missing."""
    if done.returncode != status:
        yield f"{done.args}: status {done.returncode}, not {status}: " \
              f"{done.stdout}{done.stderr}"
    for text, wanted in ((done.stdout, out), (done.stderr, err)):
        if wanted not in text:
            yield f"{done.args}: \"{wanted}\" is not in: {text}"


def objects(text: str) -> list:
    return [json.loads(line) for line in text.splitlines()]
