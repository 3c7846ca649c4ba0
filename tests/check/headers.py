#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each public header alone, as C99 and as C++11, with all warnings.

Adapters are checked where their event loop is installed. SNT_INIT() of every structure
that begins with its size compiles without a warning, in C and C++, with each compiler that
is installed, and sets the size and nothing else. Headers that begin with a whole use have
at most twenty lines of it, and it compiles; that of qp.h, cq.h and op.h is run by a test.

usage: headers.py C-COMPILER C++-COMPILER
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report, files, first_code, name

ADAPTER_LINES_MAX = 120
CODE_LINES_MAX = 20
MARKED = re.compile(r"/\* code of (\w+\.h) \*/\n(.*?)\n\t?/\* end of code \*/", re.S)
# Event loops' own headers need more than C99 has.
POSIX = "-D_POSIX_C_SOURCE=200809L"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wundef", "-Wshadow"]
SIZED = re.compile(r"^struct (snt_\w+) \{\n\tsize_t size;", re.M)
C_STANDARDS = ["c99", "c17"]
CXX_STANDARDS = ["c++11", "c++20"]


def problems(compiler: str, language: str, standard: str, header, *options) -> list:
    source = f"#include <{header}>\n" * 2
    source += "int main(void);\nint main(void) { return 0; }\n"
    done = subprocess.run(
        [compiler, "-x", language, "-std=" + standard, *WARNINGS, *options,
         "-fsyntax-only", "-I", str(ROOT / "include"), "-"],
        input=source, capture_output=True, text=True)
    return [done.stderr] if done.returncode else []


def tested_code() -> dict:
    """By header, the marked parts of tests, without the indentation of their functions."""
    found = {}
    for test in files("tests/**/*_test.c"):
        for header, part in MARKED.findall(test.read_text()):
            lines = part.rstrip().split("\n")
            if lines[0].startswith("\t"):
                lines = [line[1:] for line in lines]
            found.setdefault(header, []).append("\n".join(lines))
    return {header: "\n\n".join(parts) for header, parts in found.items()}


def too_long(code: str) -> list:
    lines = len(code.splitlines())
    return [f"{lines} lines; {CODE_LINES_MAX} are enough"] if lines > CODE_LINES_MAX else []


def code_problems(header, tested: str) -> list:
    code = first_code(header)
    if code != tested:
        return [f"{name(header)} and the test that has its code differ"]
    return too_long(code)


def missing(compiler: str, header) -> list:
    """What a header includes and this host does not have."""
    included = re.findall(r"^#include <(?!sennit/)(.+)>", header.read_text(), re.M)
    return [other for other in included if problems(compiler, "c", "gnu99", other)]


def check_adapter(report: Report, c: str, cxx: str, header) -> None:
    relative = header.relative_to(ROOT / "include")
    lines = len(header.read_text().splitlines())
    report.check(f"{name(header)} has at most {ADAPTER_LINES_MAX} lines",
                 [f"{lines} lines"] if lines > ADAPTER_LINES_MAX else [])
    absent = missing(c, header)
    if absent:
        report.check(f"{name(header)} # SKIP there is no {absent[0]}", [])
        return
    report.check(f"{name(header)} alone as C99",
                 problems(c, "c", "c99", relative, POSIX))
    report.check(f"{name(header)} alone as C++11",
                 problems(cxx, "c++", "c++11", relative))


INIT_PROGRAM = """#include <string.h>
#include <sennit/sennit.h>

static int wrong(const void *value, size_t size)
{
	const unsigned char *bytes = (const unsigned char *)value;
	size_t said, dirty = 0;

	memcpy(&said, value, sizeof(said));
	for (size_t i = sizeof(said); i < size; i++)
		dirty += bytes[i] != 0;
	return said != size || dirty;
}

int main(void)
{
	int failed = 0;
@
	return failed;
}
"""
INIT_EACH = """	{
		static struct @ fixed = SNT_INIT(fixed);
		const struct @ constant = SNT_INIT(constant);
		struct @ named = SNT_INIT(named), typed = SNT_INIT(struct @);

		failed |= wrong(&fixed, sizeof(fixed)) | wrong(&constant, sizeof(named)) |
			  wrong(&named, sizeof(named)) | wrong(&typed, sizeof(typed));
	}
"""
INIT_MEMBERS = """	{
		struct snt_qp_opts opts = SNT_INIT(opts, .lanes = 4, .send_depth = 9);

		failed |= opts.size != sizeof(opts) || opts.lanes != 4 || opts.send_depth != 9;
	}
"""


def sized_structures() -> list:
    return [structure for header in files("include/sennit/*.h")
            for structure in SIZED.findall(header.read_text())]


def init_problems(compiler: str, language: str, standard: str) -> list:
    """What is wrong with SNT_INIT(), at compile time or when the program runs."""
    parts = [INIT_EACH.replace("@", structure) for structure in sized_structures()]
    parts += [INIT_MEMBERS] if language == "c" else []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "init"
        done = subprocess.run(
            [compiler, "-x", language, "-std=" + standard, *WARNINGS, "-O0",
             "-I", str(ROOT / "include"), "-", "-o", str(program)],
            input=INIT_PROGRAM.replace("@", "".join(parts)), capture_output=True, text=True)
        if done.returncode:
            return [done.stderr]
        status = subprocess.run([str(program)]).returncode
    return [f"a structure is wrong: exit status {status}"] if status else []


def check_init(report: Report, c: str, cxx: str) -> None:
    report.check("structures that begin with their size are found",
                 [] if "snt_qp_opts" in sized_structures() else sized_structures())
    for language, compilers, standards in (("c", [c, "clang"], C_STANDARDS),
                                           ("c++", [cxx, "clang++"], CXX_STANDARDS)):
        for compiler in compilers:
            what = f"SNT_INIT() with {Path(compiler).name}"
            if not shutil.which(compiler):
                report.check(f"{what} # SKIP there is no {compiler}", [])
                continue
            for standard in standards:
                report.check(f"{what} as {standard.upper()}",
                             init_problems(compiler, language, standard))


# What the code at the beginning of a header takes from the program around it.
EXAMPLES = {
    "conn.h": "struct snt_loop *loop, struct snt_cq *cq, bool serves, "
              "void (*use)(struct snt_qp *qp)",
    "loop.h": "struct snt_ctx *ctx, int epoll, void (*use)(struct snt_loop *loop)",
    "channel.h": "struct snt_loop *loop, bool serves",
    "stream.h": "struct snt_loop *loop, bool serves",
}
EXAMPLE_PROGRAM = """#include <stdbool.h>
#include <sys/epoll.h>
#include <sennit/@>

void check(long ret);
void example(@);

void example(@)
{
@}
"""


def example_problems(c: str, header, parameters: str) -> list:
    code = first_code(header)
    source = EXAMPLE_PROGRAM
    for part in (header.name, parameters, parameters, code + "\n"):
        source = source.replace("@", part, 1)
    done = subprocess.run(
        [c, "-x", "c", "-std=c99", "-D_GNU_SOURCE", *WARNINGS, "-fsyntax-only",
         "-I", str(ROOT / "include"), "-"],
        input=source, capture_output=True, text=True)
    return [done.stderr] if done.returncode else too_long(code)


def main() -> None:
    c, cxx = sys.argv[1:3]
    report = Report()
    for header in files("include/sennit/*.h"):
        relative = header.relative_to(ROOT / "include")
        report.check(f"{name(header)} alone as C99", problems(c, "c", "c99", relative))
        report.check(f"{name(header)} alone as C++11",
                     problems(cxx, "c++", "c++11", relative))
        if header.name in EXAMPLES:
            report.check(f"{name(header)} begins with code that compiles",
                         example_problems(c, header, EXAMPLES[header.name]))
    for header, tested in tested_code().items():
        report.check(f"the code of {header} is tested",
                     code_problems(ROOT / "include/sennit" / header, tested))
    for header in files("include/sennit/adapters/*.h"):
        check_adapter(report, c, cxx, header)
    check_init(report, c, cxx)
    report.end()


main()
