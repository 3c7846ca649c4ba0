#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checks can fail: each is given a copy of the tree with one thing wrong.

usage: selftest.py CLANG-FORMAT C-COMPILER C++-COMPILER ARCHIVE LIBRARY
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report

COPIED = ["include", "src", "preload", "nccl", "tests", "bench", "examples", "scripts", "docs",
          "README.md", "CONTRIBUTING.md", ".clang-format"]


def add(text: str):
    return lambda old: old + text


def replace(this: str, by: str):
    def change(old: str) -> str:
        assert this in old, this
        return old.replace(this, by, 1)
    return change


# The check, what is wrong, where, and how it gets there.
MUTATIONS = [
    ("layers", "an include that goes up", "src/util/err.c",
     replace("#include <stdio.h>", '#include "dev/ctx.h"')),
    ("layers", "a private include of one kind of device", "src/dev/ctx.c",
     add('#include "dev/verbs/err.h"\n')),
    ("layers", "a question for the kind of device", "src/util/log.c",
     add("int kind = SNT_DEVICE_SOFT;\n")),
    ("layers", "a device struct looked into", "src/util/log.c",
     add("int f(struct snt_device *d) { return d->provider != 0; }\n")),
    ("layers", "a field of a virtual QP read by the loop", "src/loop/group.c",
     add("int f(struct snt_qp *qp);\nint f(struct snt_qp *qp)\n{\n\treturn qp->tail;\n}\n")),
    ("layers", "a field of a stream's QP", "src/stream/info.c",
     add("int f(struct snt_stream *s) { return s->qp->tail; }\n")),
    ("layers", "two modules that include each other", "src/util/err.h",
     replace("#define SNT_UTIL_ERR_H\n", '#define SNT_UTIL_ERR_H\n#include "util/setting.h"\n')),
    ("layers", "an inline verb that needs libibverbs below", "src/dev/mem.c",
     add("void *f(void) { return ibv_create_cq_ex(0, 0); }\n")),
    ("layers", "a benchmark with a private header", "bench/mem.c",
     add('#include "dev/ctx.h"\n')),
    ("layers", "an example with a private header", "examples/01-hello.c",
     add('#include "dev/ctx.h"\n')),
    ("layers", "a public header that needs verbs.h", "include/sennit/mem.h",
     add("#include <infiniband/verbs.h>\n")),
    ("headers", "a header that does not stand alone", "include/sennit/mem.h",
     replace("#include <stddef.h>\n", "struct lonely { size_tt size; };\n")),
    ("headers", "a header that is not C99", "include/sennit/err.h",
     add("_Static_assert(1, \"C11\");\n")),
    ("headers", "a header that is not C++", "include/sennit/err.h",
     add("struct named { int class; };\n")),
    ("headers", "code that is not tested", "include/sennit/op.h",
     replace("snt_op_pending(&op)", "snt_op_is_pending(&op)")),
    ("headers", "an adapter that is not C99", "include/sennit/adapters/epoll.h",
     add("_Static_assert(1, \"C11\");\n")),
    ("headers", "an adapter that is too long to read", "include/sennit/adapters/epoll.h",
     add("\n" * 120)),
    ("headers", "an initialiser that C++ warns of", "include/sennit/api.h",
     replace("#define SNT_INIT(what) snt__init<__typeof__(what)>()",
             "#define SNT_INIT(what) { sizeof(what) }")),
    ("headers", "an initialiser without the size", "include/sennit/api.h",
     replace("\tvalue.size = sizeof(value);\n", "")),
    ("headers", "a header whose first code does not compile", "include/sennit/stream.h",
     replace(" *\tchar text[] = \"hello\";\n", "")),
    ("headers", "a header whose first code is too long", "include/sennit/stream.h",
     replace(" *\tchar text[] =", 20 * " *\t;\n" + " *\tchar text[] =")),
    ("symbols", "a function that is declared only", "include/sennit/err.h",
     add("SNT_API int snt_err_missing(void);\n")),
    ("symbols", "a function without its manual", "include/sennit/err.h",
     replace("snt_err_text - ", "snt_err_texts - ")),
    ("symbols", "a function missing from the map", "src/sennit.map",
     replace("\tsnt_err_text;\n", "")),
    ("language", "a thread called somebody", "src/util/err.c",
     add("/* Somebody else may hold it. */\n")),
    ("language", "an error about nobody", "src/util/err.c",
     add('const char *f(void) { return "nobody listens there"; }\n')),
    ("tidy", "a file without a licence", "src/util/err.c",
     replace("/* SPDX-License-Identifier: MIT */\n", "")),
    ("tidy", "a function that is too long", "src/util/err.c",
     add("\nint f(void)\n{\n" + "\tf();\n" * 71 + "}\n")),
    ("tidy", "a library that prints", "src/util/err.c",
     add('\nvoid f(void)\n{\n\tprintf("x");\n}\n')),
    ("tidy", "a library that prints to stderr", "src/util/err.c",
     add('\nvoid f(void)\n{\n\tfputs("x", stderr);\n}\n')),
    ("tidy", "a skipped test without a reason", "tests/soft/crc_test.c",
     add("\nvoid f(void)\n{\n\tskip();\n}\n")),
    ("tidy", "unfinished work", "src/util/err.c", add("/* FIX" + "ME */\n")),
    ("tidy", "bad format", "src/util/err.c", add("int  x ;\n")),
    ("names", "a name that another file has", "src/util/err.c",
     add("\nstatic void is_known_setting(void)\n{\n}\n")),
    ("names", "a function called by one word", "src/util/err.c",
     add("\nstatic __attribute__((cold)) void run(void)\n{\n}\n")),
    ("readme", "code that is not the tested one", "README.md",
     replace(".lanes = 4", ".lanes = 5")),
    ("readme", "a dead link", "README.md", add("[x](docs/nowhere.md)\n")),
]


def copy_tree(target: Path) -> None:
    for item in COPIED:
        source = ROOT / item
        if source.is_dir():
            shutil.copytree(source, target / item,
                            ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target / item)


def run(tree: Path, check: str, arguments: dict) -> int:
    return subprocess.run(
        [sys.executable, str(tree / f"tests/check/{check}.py"), *arguments[check]],
        capture_output=True).returncode


def main() -> None:
    clang_format, c, cxx = sys.argv[1:4]
    archive, library = map(os.path.abspath, sys.argv[4:])
    arguments = {"layers": [archive], "headers": [c, cxx], "symbols": [library],
                 "tidy": [clang_format], "names": [], "readme": [], "language": []}
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        copy_tree(tree)
        for check in arguments:
            report.check(f"{check} passes on the tree as it is",
                         ["it fails"] if run(tree, check, arguments) else [])
        for check, wrong, where, change in MUTATIONS:
            file = tree / where
            original = file.read_text()
            file.write_text(change(original))
            report.check(f"{check} finds {wrong}",
                         [] if run(tree, check, arguments) else ["it passes"])
            file.write_text(original)
    report.end()


main()
