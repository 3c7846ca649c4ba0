#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Folders are the layers: which may include which, and which may call libibverbs.

usage: layers.py LIBRARY-ARCHIVE
"""

import re
import sys

from tap import ROOT, Report, files, name, output

# Highest first. A folder includes only from itself and from those below it;
# public headers may be included by all, and include only one another.
LAYERS = ["src/channel", "src/stream", "src/conn", "src/loop", "src/vqp", "src/dev", "src/util"]

# Kinds of devices: nothing outside may know them, except through the tables
# that src/dev/provider.h and the public headers declare.
KINDS = ["src/dev/verbs", "src/dev/soft"]

# The only archive members that may refer to functions of libibverbs and
# librdmacm. Pure helpers, which take no object, are fine anywhere.
CALLERS = re.compile(r"(^|.*/)src_dev_verbs_")
PURE = {"ibv_wc_status_str", "ibv_event_type_str", "ibv_node_type_str",
        "ibv_port_state_str", "ibv_rate_to_mbps", "ibv_rate_to_mult"}

# Verbs that go through ibv_context::ops, so that any device may be below. All
# other inline ones, such as ibv_create_cq_ex(), leave no symbol behind.
INLINE = {"ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv", "ibv_poll_cq",
          "ibv_req_notify_cq"}
VERB_CALL = re.compile(r"\b((?:ibv|rdma)_\w+)\s*\(")

# How one would ask a device what kind it is.
KIND_WORDS = re.compile(r"\bSNT_DEVICE_(VERBS|SOFT|ADOPTED)\b|\bsnt__provider\w*"
                        r"|(->|\.)(provider|kind)\b")

# Sources of one name are one module: list.h with list.c. Modules do not include each other
# in a circle, except for those that are still to be taken apart.
NO_CIRCLES = ["src", "preload", "bench", "tests/lib"]
CIRCLES_LEFT = re.compile(r"src/conn/|src/dev/(device|port)$|src/dev/soft/|"
                          r"tests/lib/devices/scripted")

# The layers above src/vqp/ ask (vqp/view.h); they do not read its fields, except for what a
# CQ keeps for them.
ABOVE_VQP = ("src/loop/", "src/conn/", "src/stream/", "src/channel/")
VQP_OBJECT = re.compile(r"struct snt_(?:qp|cq|srq) \*(?:const )?(\w+)")
VQP_MEMBERS = {"qp", "cq", "recv_cq", "srq"}
FIELD = re.compile(r"(->)?\b(\w+)(?=->(\w+))")
KEPT_FOR_ABOVE = {"notify"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def layer_of(path: str) -> int:
    return next((i for i, layer in enumerate(LAYERS) if path.startswith(layer + "/")), -1)


def kind_of(path: str):
    return next((kind for kind in KINDS if path.startswith(kind + "/")), None)


def includes(path):
    return [target for _, target in INCLUDE.findall(path.read_text())]


def upward(path):
    """Includes of a source file that go up, sideways into a kind, or nowhere."""
    here = name(path)
    for target in includes(path):
        there = "src/" + target
        if not (ROOT / there).exists():
            continue  # a system or public header
        if layer_of(there) < layer_of(here):
            yield f"{here} includes {target}, which is a layer above"
        kind = kind_of(there)
        if kind and kind != kind_of(here):
            yield f"{here} includes {target}, which only {kind} may"


def unresolved(path):
    """Quoted includes must be by path from src/, so that layers show."""
    # No part of the library: it stands for libibverbs and librdmacm, on soft devices.
    beside = name(path).startswith("preload/")
    for mark, target in INCLUDE.findall(path.read_text()):
        if mark == '"' and not (ROOT / "src" / target).exists() and \
                not (beside and (path.parent / target).exists()):
            yield f'{name(path)} includes "{target}", which is not below src/'


def private_includes(path):
    for target in includes(path):
        if (ROOT / "src" / target).exists() or target.startswith("../src"):
            yield f"{name(path)} includes {target}; programs use installed headers only"


def header_includes(path):
    for target in includes(path):
        local = target.startswith("sennit/")
        if local and not (ROOT / "include" / target).exists():
            yield f"{name(path)} includes {target}, which does not exist"
        if target.startswith(("infiniband/", "rdma/")):
            yield f"{name(path)} includes {target}; declare the structures instead"


def inline_calls(path):
    if name(path).startswith("src/dev/verbs/"):
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = re.sub(r'"[^"]*"|/\*.*|^ \*.*', "", line)
        for call in VERB_CALL.findall(code):
            if call not in INLINE | PURE:
                yield f"{name(path)}:{number}: {call}"


def modules(folder: str):
    """What each module includes of the same folder."""
    graph = {}
    for path in files(f"{folder}/**/*.[ch]"):
        own = name(path.with_suffix(""))
        targets = graph.setdefault(own, set())
        for target in includes(path):
            for found in (path.parent / target, ROOT / folder / target):
                if found.exists() and name(found.resolve().with_suffix("")) != own:
                    targets.add(name(found.resolve().with_suffix("")))
    return graph


def circles(folder: str):
    graph = modules(folder)

    def reached(start: str) -> set:
        seen, left = set(), [start]
        while left:
            for target in graph.get(left.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    left.append(target)
        return seen

    below = {module: reached(module) for module in graph}
    for module in sorted(graph):
        circle = {other for other in below[module] if module in below.get(other, ())}
        if circle and module == min(circle) and \
                not all(CIRCLES_LEFT.match(other) for other in circle):
            yield f"these include each other: {', '.join(sorted(circle))}"


def foreign_calls(archive: str):
    member = ""
    for line in output("nm", "-u", archive).splitlines():
        if line.endswith(".o:"):
            member = line.rstrip(":")
            continue
        symbol = line.split()[-1] if line.split() else ""
        if symbol.startswith(("ibv_", "_ibv_", "rdma_")) and symbol not in PURE \
                and not CALLERS.match(member):
            yield f"{member} calls {symbol}; only src/dev/verbs/ may"


def fields_read(path):
    """Reads of a virtual QP, CQ or SRQ: of a variable of that type, or a member named so."""
    variables = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("}"):
            variables = set()
        variables.update(VQP_OBJECT.findall(line))
        for member, owner, field in FIELD.findall(line):
            if owner in (VQP_MEMBERS if member else variables) and \
                    field not in KEPT_FOR_ABOVE:
                yield f"{name(path)}:{number}: {owner}->{field}"


def asks_for_kind(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not name(path).startswith("src/dev/") and KIND_WORDS.search(line):
            yield f"{name(path)}:{number}: {line.strip()}"


def main() -> None:
    report = Report()
    sources = files("src/**/*.[ch]")
    programs = files("examples/**/*.[ch]", "tools/**/*.[ch]", "bench/**/*.[ch]",
                     "nccl/*.[ch]")
    report.check("every source file is in a layer",
                 [name(p) for p in sources if layer_of(name(p)) < 0])
    report.check("no include goes up, or into a kind of device",
                 [e for p in sources for e in upward(p)])
    report.check("nothing above src/dev/ asks which kind of device it runs on",
                 [e for p in sources for e in asks_for_kind(p)])
    report.check("nothing above src/vqp/ reads its fields",
                 [e for p in sources if name(p).startswith(ABOVE_VQP)
                  for e in fields_read(p)])
    report.check("includes name their path below src/",
                 [e for p in sources + files("preload/*.[ch]") for e in unresolved(p)])
    report.check("programs use installed headers only",
                 [e for p in programs for e in private_includes(p)])
    report.check("public headers need no header of rdma-core",
                 [e for p in files("include/**/*.h") for e in header_includes(p)])
    report.check("elsewhere only verbs of the data path are called inline",
                 [e for p in sources for e in inline_calls(p)])
    report.check("no modules include each other in a circle",
                 [e for folder in NO_CIRCLES for e in circles(folder)])
    report.check("only src/dev/verbs/ calls libibverbs",
                 list(foreign_calls(sys.argv[1])))
    report.end()


main()
