#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sennit ping: what works between two ends, and what is said of the rest.

usage: ping.py SENNIT
"""

import random
import re
import socket
import sys
import tempfile
from pathlib import Path

from kit import SECONDS, Cases, Server, Skip, Tool, expect, objects, wait_until


def ping(tool: Tool, server: Server, *words):
    return tool("ping", server.host, "--port", server.port, *words)


def works(tool: Tool):
    """all pairs work: lanes, pairs and both ends' words"""
    with Server(tool, "ping", "--serve", "--count", "3") as server:
        done = ping(tool, server, "--lanes", "4")
        yield from expect(done, 0, "4 lanes, MTU 4096, connected in ")
        yield from expect(done, 0, "lane 3: soft1 (")
        yield from expect(done, 0, ", by shm\n")
        yield from expect(done, 0, "2 of 2 pairs of devices work:\n  + soft0 (")
        if done.stderr:
            yield done.stderr
        yield from expect(ping(tool, server, "--verbose"), 0, "we connect; the peer is ")
        (found,) = objects(ping(tool, server, "--json").stdout)
        if len(found["lanes"]) != 2 or found["left_out_ours"] or \
                not found["pairs"][0]["works"]:
            yield str(found)
        if server.child.wait(SECONDS):
            yield f"the server ends with {server.child.returncode}"
        lines = server.child.stdout.read().decode().splitlines()
        if len(lines) != 3 or "4 lanes, 2 of 2 pairs" not in lines[0]:
            yield str(lines)


def some_loopback() -> str:
    """An address that no other test takes for its own."""
    return f"127.{random.randrange(200, 250)}.{random.randrange(256)}.{random.randrange(256)}"


def said_addresses(tool: Tool):
    """a server says where it is reached: at all devices, or at its --source alone"""
    both = [some_loopback(), some_loopback()]
    for words, expected in ([], both), (["--source", both[1]], both[1:]):
        with Server(tool, "ping", "--serve", "--soft-addresses", ",".join(both), *words,
                    "--count", len(expected)) as server:
            said = re.search(r"devices at (.+)", server.said())[1].split(", ")
            if said != expected:
                yield f"{said} instead of {expected}"
            for host in said:
                yield from expect(tool("ping", host, "--port", server.port), 0, "2 of 2")


def with_ipv6_loopback(tool: Tool, server: Server, make_addresses, *words):
    """There is but one ::1, which another program may have for a while."""
    tries = []

    def is_had() -> bool:
        tries.append(ping(tool, server, "--soft-addresses", make_addresses(), *words))
        return "no devices" not in tries[-1].stderr or \
            "no interface of this host" in tries[-1].stderr

    try:
        wait_until(is_had, "::1")
    except TimeoutError:
        raise Skip("another program has ::1") from None
    if "no devices" in tries[-1].stderr:
        raise Skip("this host has no IPv6")
    return tries[-1]


def partly(tool: Tool):
    """a device without a working pair is named, with advice, and the status is 3"""
    with Server(tool, "ping", "--serve") as server:
        done = with_ipv6_loopback(tool, server, lambda: f"{some_loopback()},::1")
        yield from expect(done, 3, "! soft1 (::1) - ")
        yield from expect(done, 3, "\ndevices without a working pair:\n  soft1 (::1)\n")
        if "give both devices an address of the same kind" not in " ".join(done.stdout.split()):
            yield done.stdout
        if max(map(len, done.stdout.splitlines())) > 80:
            yield done.stdout
        if server.stop():
            yield "the server does not end well"


def no_pair(tool: Tool):
    """where no pair works there is no connection, and every pair is told, in JSON too"""
    with Server(tool, "ping", "--serve", "--carrier", "tcp") as server:
        server.host = "127.0.0.1"
        done = with_ipv6_loopback(tool, server, lambda: "::1", "--carrier", "tcp")
        yield from expect(done, 1, "! soft0 (::1) - ")
        yield from expect(done, 1, "what to do where their addresses are of different families")
        done = with_ipv6_loopback(tool, server, lambda: "::1", "--carrier", "tcp", "--json")
        tried, failed = objects(done.stdout)
        if failed["status"] != 1 or tried["pairs"][0]["works"] or \
                "same kind" not in tried["pairs"][0]["advice"]:
            yield str(tried)


def address_in_use(tool: Tool):
    """a soft address in use is answered with advice on addresses, and none on ports"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        address = some_loopback()
        other.bind((address, 4791))
        done = tool("info", "--soft-addresses", address)
        yield from expect(done, 1, err="choose other addresses with --soft-addresses")
        if "--port" in done.stderr:
            yield done.stderr


def address_shared(tool: Tool):
    """a tool beside a server may use its address"""
    with Server(tool, "ping", "--serve") as server:
        yield from expect(tool("info", "--soft-addresses", server.host), 0, server.host)
        done = tool("ping", server.host, "--port", server.port,
                    "--soft-addresses", server.host)
        yield from expect(done, 0)


def refused(tool: Tool):
    """where there is no listener, it says so and what to start"""
    with Server(tool, "ping", "--serve") as server:
        done = tool("ping", server.host, "--port", "1")
        yield from expect(done, 1, err="no listener has that port")
        yield from expect(done, 1, err="start a server there first: sennit ping --serve")
        (found,) = objects(tool("ping", server.host, "--port", "1", "--json").stdout)
        if found["status"] != 1 or "start a server" not in found["next"]:
            yield str(found)


def why_is_told(tool: Tool):
    """what the library says of a call that fails is not lost on the way"""
    done = tool("ping", "--source", "192.0.2.9", "127.200.0.1")
    yield from expect(done, 1, err="cannot connect to 127.200.0.1 port 18515: ")
    yield from expect(done, 1, err="no device has the source address")


def unreachable(tool: Tool):
    """from loopback devices to another host: the advice is about addresses"""
    done = tool("ping", "192.0.2.1", "--setup-time", "200ms")
    yield from expect(done, 1, err="--soft-addresses eth0")


def secrets(tool: Tool):
    """a secret must be known at both ends"""
    with tempfile.TemporaryDirectory() as name:
        key, other, short = (Path(name) / file for file in ("key", "other", "short"))
        key.write_text("0123456789abcdef\n")
        other.write_text("0123456789abcdeX\n")
        short.write_text("0123\n")
        for file in (key, other):
            file.chmod(0o600)
        with Server(tool, "ping", "--serve", "--secret-file", key) as server:
            if "libcrypto" in server.said():
                raise Skip("built without libcrypto")
            done = ping(tool, server, "--secret-file", key)
            yield from expect(done, 0, "authenticated by the secret")
            for words in (["--secret-file", other], []):
                yield from expect(ping(tool, server, *words), 1,
                                  err="give both ends a --secret-file")
            done = ping(tool, server, "--secret-file", short)
            yield from expect(done, 1, err="the secret has 4 bytes; 16 to 256")
            yield from expect(done, 1, err="is readable by other users")
            yield from expect(ping(tool, server, "--secret-file", "/nonexistent"), 1,
                              err="No such file")


def by_tcp(tool: Tool):
    """over a TCP carrier"""
    with Server(tool, "ping", "--serve", "--carrier", "tcp") as server:
        done = tool("ping", "127.0.0.1", "--port", server.port, "--carrier", "tcp")
        yield from expect(done, 0, "2 of 2 pairs of devices work")


def main() -> None:
    tool, cases = Tool(sys.argv[1]), Cases()
    for case in (works, said_addresses, partly, no_pair, address_in_use, address_shared,
                 refused, why_is_told, unreachable,
                 secrets, by_tcp):
        cases.run(case, tool)
    cases.report.end()


main()
