#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completion in shells: every command and option of the help is offered, and values.

usage: completion.py SENNIT
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kit import Cases, Tool, expect, objects

# Asks what is offered for a line of words, of which the last one is being typed.
ASK = """
source "$1"; shift
COMP_WORDS=(sennit "$@")
COMP_CWORD=$#
_sennit
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Shell:
    def __init__(self, script: str) -> None:
        self.file = tempfile.NamedTemporaryFile("w", suffix=".bash")
        self.file.write(script)
        self.file.flush()

    def offers(self, *words: str) -> set:
        done = subprocess.run(["bash", "-c", ASK, "bash", self.file.name, *words],
                              text=True, capture_output=True)
        if done.returncode or done.stderr:
            raise RuntimeError(done.stderr)
        return set(done.stdout.split())


def options_in_help(text: str) -> set:
    """As people read them, so that nothing can be missing in both."""
    found = set()
    for letter, name in re.findall(r"^  (?:(-\w),|   ) (--[\w-]+)", text, re.M):
        found |= {name} | ({letter} if letter else set())
    return found


def in_bash(tool: Tool):
    """bash offers every command, and every option of each"""
    shell = Shell(tool("help", "--bash").stdout)
    listed = tool("help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    names = set(re.findall(r"^  ([a-z]+) ", listed, re.M))
    if len(names) < 9 or not names <= shell.offers(""):
        yield f"{names} but {shell.offers('')}"
    if shell.offers("p") != {"ping", "perf"} or not names <= shell.offers("help", ""):
        yield f"{shell.offers('p')} {shell.offers('help', '')}"
    for name in names:
        options = options_in_help(tool(name, "--help").stdout)
        if not {"--help", "-h", "--json"} <= options or shell.offers(name, "-") != options:
            yield f"{name}: {options ^ shell.offers(name, '-')}"


def values(tool: Tool):
    """and what an option may be"""
    shell = Shell(tool("help", "--bash").stdout)
    interfaces = {name for name in os.listdir("/sys/class/net") if name.startswith("lo")}
    for words, wanted in ((["ping", "--carrier", ""], {"cm", "tcp"}),
                          (["ping", "--carrier", "=", "t"], {"tcp"}),
                          (["ping", "--carrier", "="], {"cm", "tcp"}),
                          (["cp", "--soft", "n"], {"never"}),
                          (["perf", "--scheme", ""], {"all", "spray", "dqplb"}),
                          (["perf", "--test", "=", "l"], {"lat"}),
                          (["perf", "--op", "w"], {"write", "write-imm"}),
                          (["perf", "-o", "read,s"], {"read,send", "read,stream"}),
                          (["perf", "--op", "read,send,f"], {"read,send,fetch-add"}),
                          (["perf", "--mtu", "10"], {"1024"}),
                          (["perf", "--soft-addresses", "lo"], interfaces),
                          (["perf", "--soft-addresses", "10.0.0.1,lo"], {f"10.0.0.1,{name}" for name in interfaces}),
                          (["perf", "--port", ""], set()),
                          (["cp", "--secret-file", ""], set())):  # the shell's own files
        if shell.offers(*words) != wanted:
            yield f"{words}: {shell.offers(*words)}"
    if not any(name.endswith("sh") for name in shell.offers("run", "bas")):
        yield "no programs are offered"


def values_work(tool: Tool):
    """every value that is offered is one that the tool takes"""
    shell = Shell(tool("help", "--bash").stdout)
    for option in ("--op", "--test", "--scheme", "--balance", "--mtu"):
        offered = shell.offers("perf", option, "")
        refused = tool("perf", "--local", option, "frob").stderr
        known = re.search(r"(?:not one of|not a list of these:) (.*)", refused)
        if len(offered) < 3 or (known and set(re.split(r", |\|", known[1])) != offered):
            yield f"{option}: {offered}, but {refused}"
        for value in offered:
            # Nothing is measured, since no server listens on that port.
            done = tool("perf", option, value, "--port", "1", "127.0.0.1")
            yield from expect(done, 1, err="port 1")


def in_zsh(tool: Tool):
    """the script for zsh has all of them, too, and zsh has nothing against it"""
    script = tool("help", "--zsh").stdout
    for command in objects(tool("help", "--json").stdout):
        part = script.partition(f"\t{command['name']})\n")[2].partition(";;")[0]
        for option in command["options"]:
            if f"--{option['name']}" not in part:
                yield f"{command['name']}: there is no --{option['name']}"
    for words in ("_values -s , op all write ", "_values -s , scheme all spray dqplb"):
        if words not in script:
            yield f"no {words}"
    if not shutil.which("zsh"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_sennit"
        path.write_text(script)
        done = subprocess.run(["zsh", "-n", path], capture_output=True, text=True)
        if done.returncode or done.stderr:
            yield done.stderr


def one_of_them(tool: Tool):
    """help as JSON is of all commands or of one, and forms exclude each other"""
    (found,) = objects(tool("help", "--json", "ping").stdout)
    ports = [o for o in found["options"] if o["name"] == "port"]
    if found["name"] != "ping" or ports[0]["default"] != "18515" or ports[0]["letter"] != "p":
        yield str(found)
    yield from expect(tool("help", "--bash", "--man"), 2, err="exclude each other")
    yield from expect(tool("help", "--zsh", "ping"), 2, err="for all commands")


def main() -> None:
    tool, cases = Tool(sys.argv[1]), Cases()
    for case in (in_bash, values, values_work, in_zsh, one_of_them):
        cases.run(case, tool)
    cases.report.end()


main()
