#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Judges captured RoCEv2 packets with eyes that are not ours.

usage: capture.py COMMAND... FILE

Runs COMMAND, in whose words FILE is replaced by the name of a file that it is to write
packets to (pcap or pcapng). tshark must be able to read each of them, and its ICRC must
be right by the words of InfiniBand's annex A17, as they are put down here once more.
Prints TAP, and what kinds of packets there were. Skipped where there is no tshark.
"""

import collections
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Iterator, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tap import Report  # noqa: E402

# RoCEv2 has no UDP checksum over IPv6 either, as RFC 6936 allows; and tshark is not to
# guess what our payload could mean.
MIND = ["-o", "udp.ignore_ipv6_zero_checksum:TRUE", "--disable-heuristic", "eth_over_ib"] + [
    word for protocol in ("smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser",
                          "infiniband_sdp", "fcoib")
    for word in ("--disable-protocol", protocol)]

ROCE_PORT = 4791
ETHERNET, RAW_IP = 1, 101
UDP = 17


class Captured(NamedTuple):
    link: int  # what its bytes begin with
    data: bytes


def read_pcap(data: bytes) -> Iterator[Captured]:
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    link = struct.unpack_from(order + "I", data, 20)[0]
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        yield Captured(link, data[at + 16:at + 16 + size])
        at += 16 + size


def read_pcapng(data: bytes) -> Iterator[Captured]:
    order, at, links = "<", 0, []
    while at + 12 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind == 0x0A0D0D0A:  # the same in both orders; now it says which
            order = "<" if data[at + 8:at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            size = struct.unpack_from(order + "I", data, at + 4)[0]
            links = []
        elif kind == 1:
            links.append(struct.unpack_from(order + "H", data, at + 8)[0])
        elif kind == 6:
            interface, _, _, length = struct.unpack_from(order + "IIII", data, at + 8)
            yield Captured(links[interface], data[at + 28:at + 28 + length])
        at += size


def read(path: Path) -> list:
    data = path.read_bytes()
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        return list(read_pcapng(data))
    return list(read_pcap(data))


def ip_of(packet: Captured) -> bytes:
    """From the IP header on, and without what pads a short frame."""
    data = packet.data
    if packet.link == ETHERNET:
        if data[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            return b""
        data = data[14:]
    elif packet.link != RAW_IP:
        raise SystemExit(f"capture.py: link type {packet.link} is not known")
    if data[0] >> 4 == 4:
        return data[:struct.unpack_from(">H", data, 2)[0]]
    return data[:40 + struct.unpack_from(">H", data, 4)[0]]


def udp_offset(ip: bytes) -> int:
    """Where the UDP header of a RoCEv2 packet begins; 0: it is none."""
    if not ip:
        return 0
    if ip[0] >> 4 == 4:
        offset, protocol = 4 * (ip[0] & 15), ip[9]
    else:
        offset, protocol = 40, ip[6]
    if protocol != UDP or ip[offset + 2:offset + 4] != ROCE_PORT.to_bytes(2, "big"):
        return 0
    return offset


def icrc_of(ip: bytes, udp: int) -> bytes:
    """Ones in place of the LRH, and of all that may change on the way."""
    masked = bytearray(ip[:-4])
    if ip[0] >> 4 == 4:
        masked[1] = 0xFF  # type of service
        masked[8] = 0xFF  # time to live
        masked[10:12] = b"\xff\xff"  # checksum
    else:
        masked[0] |= 0x0F  # traffic class and flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
    masked[udp + 6:udp + 8] = b"\xff\xff"  # checksum
    masked[udp + 8 + 4] = 0xFF  # of the BTH: FECN, BECN, reserved bits
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")


def is_sealed(ip: bytes) -> bool:
    return ip[-4:] == icrc_of(ip, udp_offset(ip))


def text_of(ip: bytes) -> str:
    return ip[:64].hex(" ", 4) + ("" if len(ip) <= 64 else f" ... ({len(ip)} bytes)")


def judge_icrcs(packets: list, report: Report) -> None:
    bad = [ip for ip in packets if not is_sealed(ip)]
    report.check(f"the ICRC of {len(packets)} packets", [text_of(ip) for ip in bad[:5]])
    damaged = bytearray(packets[-1])
    damaged[-6] ^= 0x10
    report.check("the ICRC of a damaged one is wrong",
                 ["it was taken for right"] if is_sealed(bytes(damaged)) else [])


def ask_tshark(path: Path, *options: str) -> list:
    done = subprocess.run(["tshark", *MIND, "-r", str(path), *options],
                          capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise SystemExit(f"capture.py: tshark: {done.stderr.strip()}")
    return done.stdout.splitlines()


def judge_decoding(path: Path, count: int, report: Report) -> None:
    """All are RoCE to tshark, to their end, and none is strange."""
    strange = ask_tshark(path, "-Y", "_ws.malformed || _ws.short || _ws.expert.severity"
                                     " >= error")
    report.check("tshark finds no packet malformed", strange[:5])
    lines = ask_tshark(path, "-Y", "infiniband.bth", "-T", "fields", "-e",
                       "infiniband.bth.opcode", "-e", "_ws.col.Info")
    report.check(f"tshark decodes {count} packets",
                 [] if len(lines) == count else [f"it does so with {len(lines)}"])
    kinds = collections.Counter(
        line.partition("\t")[2].partition(" QP=")[0].strip() for line in lines)
    for kind, number in sorted(kinds.items()):
        print(f"# {number:6} {kind}")


def main() -> None:
    command = sys.argv[1:]
    if not command:
        sys.exit(__doc__)
    if not shutil.which("tshark"):
        print("1..0 # SKIP tshark is not installed")
        return
    report = Report()
    with tempfile.TemporaryDirectory(prefix="sennit-capture-") as folder:
        path = Path(folder) / "capture"
        done = subprocess.run([str(path) if word == "FILE" else word for word in command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace")
        report.check("the program ends well",
                     [done.stdout, done.returncode] if done.returncode else [])
        ips = [ip_of(packet) for packet in read(path)] if path.exists() else []
        packets = [ip for ip in ips if udp_offset(ip)]
        report.check("there are packets", [] if packets else [done.stdout, "none"])
        if packets:
            judge_icrcs(packets, report)
            judge_decoding(path, len(packets), report)
    report.end()


if __name__ == "__main__":
    main()
