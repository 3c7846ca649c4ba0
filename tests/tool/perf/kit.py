# SPDX-License-Identifier: MIT
"""What tests of `sennit perf` share: running it, its server, its control messages."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "check"))

HEADER = struct.Struct(">IHH")
HELLO, CASE, READY, CONNECT, RUN, RUNNING = 1, 2, 3, 4, 6, 7
STOP, DONE, FAILED = 8, 10, 12
WRITE, SEND, STREAM = 1, 4, 7
BANDWIDTH = 1
# A slow machine is not a failure.
PATIENCE_S = 120 * float(os.environ.get("SNT_TIMEOUT_MULTIPLIER", 1))


class Tool:
    def __init__(self, path: str) -> None:
        self.path = path
        self.environment = {**os.environ, "SENNIT_SOFT": "only"}

    def run(self, *options: str, **more):
        more.setdefault("env", self.environment)
        return subprocess.run([self.path, "perf", *options], text=True,
                              capture_output=True, timeout=PATIENCE_S, **more)

    def start(self, *options: str) -> subprocess.Popen:
        return subprocess.Popen([self.path, "perf", *options], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment)

    def results(self, *options: str) -> list:
        """Both ends on this host; one object for each case."""
        done = self.run("--local", "--json", *options)
        if done.returncode:
            raise AssertionError(f"{options}: status {done.returncode}: "
                                 f"{done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


class Server:
    """One that is asked to listen on a free port of loopback."""

    def __init__(self, tool: Tool) -> None:
        self.process = tool.start("--port", "0", "--bind", "127.0.0.1")
        self.port = None
        for line in self.process.stderr:
            found = re.search(r"waiting for clients on port (\d+)", line)
            if found:
                self.port = found[1]
                break
        assert self.port, "the server does not say its port"

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", status)[1])

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.port)), PATIENCE_S)


class FakeServer:
    """One that says what it likes: for each message of its client what a function makes of
    the message's type."""

    def __init__(self, says) -> None:
        self.says = says
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        try:
            connection, _ = self.listener.accept()
            with connection:
                while said := answer(connection):
                    connection.sendall(self.says(said[0]))
        except OSError:  # the client hung up, or never came
            pass

    def __enter__(self) -> str:
        self.thread.start()
        return str(self.listener.getsockname()[1])

    def __exit__(self, *_) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


class Listener:
    """Between a client and its server: passes everything on, and keeps what kinds of
    messages the client has sent."""

    def __init__(self, server: Server) -> None:
        self.server, self.heard = server, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._listen)

    def _listen(self) -> None:
        client, _ = self.listener.accept()
        with client, self.server.dial() as onward:
            back = threading.Thread(target=self._pass_back, args=(onward, client))
            back.start()
            try:
                while said := answer(client):
                    self.heard.append(said[0])
                    onward.sendall(frame(*said))
                onward.shutdown(socket.SHUT_WR)
            except OSError:  # the server hung up
                pass
            back.join()

    def _pass_back(self, onward: socket.socket, client: socket.socket) -> None:
        try:
            while data := onward.recv(65536):
                client.sendall(data)
        except OSError:
            pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.thread.join()
        self.listener.close()

    def port(self) -> str:
        return str(self.listener.getsockname()[1])


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def frame(kind: int, body: bytes = b"", version: int = 6) -> bytes:
    return HEADER.pack(len(body), version, kind) + body


def hello(devices: int = 2) -> bytes:
    return frame(HELLO, struct.pack(">I", devices) +
                 b"".join(map(text, ("0", "elsewhere", "", "", "none"))))


def case(kind: int = BANDWIDTH, op: int = WRITE, scheme: int = 1, balance: int = 0,
         verify: int = 0, events: int = 0, lanes: int = 2, depth: int = 16,
         batch: int = 1, mtu: int = 0, size: int = 4096, fragment: int = 0,
         seed: int = 1, bidirectional: int = 0, timeout: int = 0) -> bytes:
    return frame(CASE, struct.pack(">BBBBBBBBIIIIQQQ", kind, op, scheme, balance, verify,
                                   events, bidirectional, timeout, lanes, depth, batch, mtu, size, fragment,
                                   seed))


def answer(connection: socket.socket):
    """The next message, as its type and body; None at the end."""
    data = b""
    length = HEADER.size
    while len(data) < length:
        try:
            more = connection.recv(length - len(data))
        except ConnectionResetError:
            return None
        if not more:
            return None
        data += more
        if len(data) == HEADER.size:
            length += HEADER.unpack(data)[0]
    return HEADER.unpack(data[:HEADER.size])[2], data[HEADER.size:]
