#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program outside of the tree builds against what `make install` puts down, and what else
is put down is of use.

usage: install.py BUILD-FOLDER C-COMPILER
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, Report

TYPE = re.compile(r"^(?:struct|enum) (snt_(?!_)\w+)(?: \{|;)", re.M)


def run(*command: str, **environment: str):
    return subprocess.run(command, text=True, capture_output=True,
                          env={**os.environ, **environment})


def build_hello(build: str, cc: str, root: Path):
    """Yields what goes wrong on the way to a program."""
    done = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", str(root))
    if done.returncode:
        yield done.stdout + done.stderr
        return
    (pc,) = root.glob("**/sennit.pc")
    flags = run("pkg-config", "--cflags", "--libs", "sennit",
                PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(root))
    if flags.returncode:
        yield flags.stderr
        return
    done = run(cc, "-std=c99", "-Wall", "-Werror", str(ROOT / "examples/01-hello.c"),
               "-o", str(root / "hello"), *flags.stdout.split())
    if done.returncode:
        yield done.stderr


def not_built(build: str):
    """`make install` builds what it installs, and no tests."""
    built = set(run("ninja", "-C", build, "-t", "query", "installed").stdout.split())
    there = Path(build).resolve()
    for path in json.loads(run("meson", "introspect", "--installed", build).stdout):
        if there in Path(path).parents and Path(path).suffix != ".pc" and \
                "cmake" not in Path(path).parts and \
                str(Path(path).relative_to(there)) not in built:
            yield f"{path} is not part of `installed` in tools/meson.build"


CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.13)
project(hello C)
find_package(sennit 0.1 REQUIRED)
add_executable(hello {source})
target_link_libraries(hello sennit::sennit)
"""


def build_with_cmake(cc: str, root: Path):
    """The same by find_package() alone."""
    folder = root / "cmake-hello"
    folder.mkdir()
    source = ROOT / "examples/01-hello.c"
    (folder / "CMakeLists.txt").write_text(CMAKE_PROJECT.format(source=source))
    (prefix,) = {p.parent.parent for p in root.glob("**/bin/sennit")}
    for words in (["-S", str(folder), "-B", str(folder), f"-DCMAKE_C_COMPILER={cc}",
                   f"-DCMAKE_PREFIX_PATH={prefix}"], ["--build", str(folder)]):
        done = run("cmake", *words)
        if done.returncode:
            yield done.stdout + done.stderr
            return
    yield from start_up(root, folder / "hello")


def soname_differs(root: Path):
    """The SONAME has the version that programs depend on, and symbols have it, too."""
    (library,) = root.glob("**/libsennit.so")
    dynamic = run("readelf", "-d", str(library)).stdout
    if "Library soname: [libsennit.so.0.1]" not in dynamic:
        yield dynamic
    if " snt_ctx_create@@SENNIT_0.1" not in run("nm", "-D", str(library)).stdout:
        yield "snt_ctx_create has no version"


def tool_differs(root: Path):
    """The tool starts, wherever it is; commands have manual pages, and shells know them."""
    (tool,) = root.glob("**/bin/sennit")
    done = run(str(tool), "help")
    if done.returncode or "Commands:" not in done.stdout:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  ([a-z]+) +\w", listed, re.M)
    for page in ["sennit.1", *(f"sennit-{name}.1" for name in names)]:
        if len(list(root.glob(f"**/man1/{page}"))) != 1:
            yield f"there is no {page}"
    for script in ("bash-completion/completions/sennit", "zsh/site-functions/_sennit"):
        found = list(root.glob(f"**/share/{script}"))
        if len(found) != 1 or "strerror" not in found[0].read_text():
            yield f"there is no {script}"


PLUGIN_LOADS = """
import ctypes, sys
plugin = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
for version in range(8, 13):
    name = ctypes.c_char_p.in_dll(plugin, f"ncclNetPlugin_v{version}").value
    assert name == b"sennit", name
"""


def plugin_differs(root: Path):
    """NCCL's plugin finds the library beside it, wherever that is; it exports its tables only."""
    (plugin,) = root.glob("**/libnccl-net-sennit.so")
    done = run(sys.executable, "-c", PLUGIN_LOADS, str(plugin), LD_LIBRARY_PATH="")
    if done.returncode:
        yield done.stderr
    symbols = run("nm", "-D", "--defined-only", str(plugin)).stdout.split()[2::3]
    if sorted(symbols) != sorted(f"ncclNetPlugin_v{version}" for version in range(8, 13)):
        yield f"it exports {symbols}"


def pages_differ(root: Path):
    """Each function and each type has a manual page."""
    (library,) = root.glob("**/libsennit.so")
    for line in run("nm", "-D", "--defined-only", str(library)).stdout.splitlines():
        symbol = line.split()[-1].split("@")[0]
        if symbol.startswith("snt_") and not list(root.glob(f"**/man3/{symbol}.3")):
            yield f"there is no {symbol}.3"
    (folder,) = {header.parent for header in root.glob("**/include/sennit/sennit.h")}
    types = {name for header in folder.glob("*.h")
             for name in TYPE.findall(header.read_text())}
    for name in sorted(types):
        if not list(root.glob(f"**/man3/{name}.3")):
            yield f"there is no {name}.3"
    if "snt_qp_opts" not in types or "snt_qp" not in types:
        yield f"not all types were found: {types}"


def groff_warns(root: Path):
    """What the program behind man(1) has to say against the pages."""
    pages = [str(page) for page in sorted(root.glob("**/man[13]/*"))
             if not page.read_text().startswith(".so ")]
    done = run("groff", "-man", "-Kutf8", "-Tutf8", "-rLL=120n", "-ww", "-z", *pages)
    if done.returncode or done.stderr or not pages:
        yield done.stderr


def start_up(root: Path, program: Path):
    """It lists devices, soft ones where there are no others."""
    (library,) = root.glob("**/libsennit.so")
    done = run(str(program), LD_LIBRARY_PATH=str(library.parent))
    devices = Path("/sys/class/infiniband")
    name = "GID" if devices.is_dir() and any(devices.iterdir()) else "soft0"
    good = done.returncode == 0 and name in done.stdout
    if not good:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


#
# `make install` by people, in a checkout that is as small as can be
#

SMALL_PROJECT = """project('small', default_options: ['libdir=lib'])
sh = find_program('sh')
page = custom_target('man1', output: 'man1', install: true, install_dir: get_option('mandir'),
  command: [sh, '-c', 'mkdir -p "$0" && echo .TH >"$0/small.1"', '@OUTPUT@'])
install_data('small', install_dir: get_option('bindir'), install_mode: 'rwxr-xr-x')
alias_target('installed', page)
"""
OWNER = 65534  # owns no other files here


def small_checkout(folder: Path) -> Path:
    """Sennit's Makefile and scripts, and next to nothing to build."""
    checkout = folder / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", checkout)
    for script in ("install.py", "configure.sh"):
        shutil.copy(ROOT / "scripts" / script, checkout / "scripts")
    (checkout / "scripts/setup.sh").write_text("#!/bin/sh\n")
    (checkout / "scripts/setup.sh").chmod(0o755)
    (checkout / "meson.build").write_text(SMALL_PROJECT)
    (checkout / "small").write_text("#!/bin/sh\n")
    return checkout


def make(checkout: Path, *words: str, **options):
    done = subprocess.run(["make", "-C", str(checkout), *words], text=True,
                          capture_output=True, **options)
    return [f"make {words}: {done.stdout}{done.stderr}"] if done.returncode else []


def tree(folder: Path) -> list:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def prefix_with_a_space(folder: Path):
    """Everything is there, and goes again, but not what is others'."""
    prefix = folder / "a b"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/other").write_text("")
    before = tree(prefix)
    checkout = small_checkout(folder)
    yield from make(checkout, "install", f"PREFIX={prefix}")
    for file in ("bin/small", "share/man/man1/small.1"):
        if not (prefix / file).is_file():
            yield f"there is no {file}: {tree(prefix)}"
    if (prefix / "bin/small").exists() and not os.access(prefix / "bin/small", os.X_OK):
        yield "the program cannot be executed"
    yield from make(checkout, "uninstall", f"PREFIX={prefix}")
    if tree(prefix) != before:
        yield f"it leaves {tree(prefix)}"
    if not make(checkout, "uninstall", f"PREFIX={prefix}"):
        yield "it removes what is not there"


def below_destdir(folder: Path):
    """As packagers do; a second time, too, and nothing lands outside of it."""
    checkout = small_checkout(folder)
    words = [f"DESTDIR={folder / 'root'}", "PREFIX=/nonexistent/usr"]
    for _ in range(2):
        yield from make(checkout, "install", *words)
    if "nonexistent/usr/bin/small" not in tree(folder / "root"):
        yield str(tree(folder))
    yield from make(checkout, "uninstall", *words)
    if tree(folder / "root"):
        yield str(tree(folder / "root"))


def owners(folder: Path) -> set:
    return {p.lstat().st_uid for p in [folder, *folder.rglob("*")]}


def by_sudo(folder: Path):
    """Root installs from another user's checkout, who can build there afterwards."""
    checkout = small_checkout(folder)
    folder.chmod(0o755)
    run("chown", "-R", str(OWNER), str(checkout))
    as_owner = {"user": OWNER, "group": OWNER, "extra_groups": []}
    built = subprocess.run(["scripts/configure.sh", "build"], cwd=checkout, **as_owner)
    if built.returncode:
        yield "the owner cannot build there"
    yield from make(checkout, "install", f"PREFIX={folder / 'prefix'}")
    if owners(checkout) != {OWNER}:
        yield f"files of {owners(checkout)} in the checkout"
    if owners(folder / "prefix") != {0}:
        yield f"files of {owners(folder / 'prefix')} were installed"
    again = subprocess.run(["ninja", "-C", "build", "installed"], cwd=checkout, text=True,
                           capture_output=True, **as_owner)
    if again.returncode:
        yield again.stdout + again.stderr


def report_make_install(report: Report) -> None:
    for what, case in (
            ("make install and uninstall, with a space in PREFIX", prefix_with_a_space),
            ("make install and uninstall, with a DESTDIR", below_destdir),
            ("sudo make install leaves a user's checkout to the user", by_sudo)):
        if case is by_sudo and os.geteuid():
            report.check(f"{what} # SKIP only root can be another user", [])
            continue
        with tempfile.TemporaryDirectory() as folder:
            report.check(what, list(case(Path(folder))))


def main() -> None:
    build, cc = sys.argv[1:3]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        problems = list(build_hello(build, cc, Path(folder)))
        report.check("hello builds with pkg-config alone", problems)
        report.check("hello starts, with or without RDMA devices",
                     problems or list(start_up(Path(folder), Path(folder) / "hello")))
        if problems:
            report.end()
        if shutil.which("cmake"):
            report.check("hello builds with CMake alone, and starts",
                         list(build_with_cmake(cc, Path(folder))))
        else:
            report.check("hello builds with CMake alone # SKIP there is no cmake", [])
        report.check("what is installed is built for it", list(not_built(build)))
        report.check("the library has its SONAME, and symbols have a version",
                     list(soname_differs(Path(folder))))
        report.check("the tool starts, and has manual pages and completion",
                     list(tool_differs(Path(folder))))
        report.check("NCCL's plugin loads from where it was installed",
                     list(plugin_differs(Path(folder))))
        report.check("functions and types have manual pages", list(pages_differ(Path(folder))))
        if shutil.which("groff"):
            report.check("man(1) has nothing against them", list(groff_warns(Path(folder))))
        else:
            report.check("man(1) has nothing against them # SKIP there is no groff", [])
    report_make_install(report)
    report.end()


main()
