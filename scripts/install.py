#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs sennit below $DESTDIR$PREFIX, or removes what was installed there.

usage: scripts/install.py BUILD
       scripts/install.py --remove

Only copying is done as the user who asks: under sudo, building belongs to the owner of the
build folder, who could not build there again otherwise. What was installed is listed in
PREFIX/share/sennit/installed, folders that were made for it with a slash at the end.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = "share/sennit/installed"


class Problem(Exception):
    """A sentence for the user."""


def prefix() -> str:
    path = os.environ.get("PREFIX") or "/usr/local"
    if not os.path.isabs(path):
        raise Problem(f"PREFIX is not an absolute path: {path}")
    return os.path.normpath(path)


def below_destdir(path: str) -> Path:
    destdir = os.environ.get("DESTDIR")
    return Path(os.path.abspath(destdir) + path) if destdir else Path(path)


class Builder:
    """Runs commands as the owner of the build folder, or of the checkout before there is one."""

    def __init__(self, build: Path) -> None:
        found = (build if build.exists() else ROOT).stat()
        self.options = {"cwd": ROOT}
        self.owner = found.st_uid, found.st_gid
        if os.geteuid() == 0 and found.st_uid != 0:
            self.options.update(user=found.st_uid, group=found.st_gid, extra_groups=[],
                                env={**os.environ, "HOME": self.home(found.st_uid)})

    @staticmethod
    def home(user: int) -> str:
        try:
            return pwd.getpwuid(user).pw_dir
        except KeyError:
            return "/nonexistent"

    def run(self, *command, **options) -> None:
        done = subprocess.run([*map(str, command)], **self.options, **options)
        if done.returncode:
            raise Problem(f"{command[0]} failed")


def stage(build: Path, folder: Path) -> None:
    """Lets Meson install into a folder of the builder's."""
    builder = Builder(build)
    if os.geteuid() == 0:
        os.chown(folder, *builder.owner)
    builder.run("scripts/configure.sh", build)
    builder.run("meson", "configure", build, "--prefix", prefix(), stdout=subprocess.DEVNULL)
    builder.run("ninja", "-C", build, "installed")
    builder.run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)


def make_folders(folder: Path) -> list:
    """Returns those that were not there, the outermost first."""
    made = []
    while not folder.is_dir():
        made.insert(0, folder)
        folder = folder.parent
    for missing in made:
        missing.mkdir()
    return made


def copy(source: Path, target: Path) -> None:
    """Replaces the target at once: a program may be using the one that is there."""
    new = target.with_name(f".{target.name}.new")
    new.unlink(missing_ok=True)
    if source.is_symlink():
        new.symlink_to(os.readlink(source))
    else:
        shutil.copyfile(source, new)
        new.chmod(source.stat().st_mode & 0o755)
    new.replace(target)


def read_list(path: Path) -> list:
    return path.read_text().splitlines() if path.exists() else []


def install(build: Path) -> None:
    os.umask(0o022)
    top = below_destdir(prefix())
    listed = top / LIST
    with tempfile.TemporaryDirectory(prefix="sennit-install-") as name:
        stage(build, Path(name))
        staged = Path(name + prefix())
        files = sorted(p.relative_to(staged) for p in staged.rglob("*")
                       if p.is_symlink() or not p.is_dir())
        before = read_list(listed)
        folders = [line for line in before if line.endswith("/")]
        for file in [*files, Path(LIST)]:
            made = make_folders((top / file).parent)
            folders += [os.path.relpath(folder, top) + "/" for folder in made]
        for file in files:
            copy(staged / file, top / file)
    gone = set(before) - {str(file) for file in files} - set(folders) - {LIST}
    for file in gone:
        (top / file).unlink(missing_ok=True)
    listed.write_text("".join(f"{line}\n" for line in [*folders, *map(str, files), LIST]))
    if not os.environ.get("DESTDIR") and os.geteuid() == 0:
        subprocess.run(["ldconfig"])
    print(f"installed below {top}: sennit, libsennit, headers, manual pages")


def remove() -> None:
    top = below_destdir(prefix())
    lines = read_list(top / LIST)
    if not lines:
        raise Problem(f"nothing was installed below {top}: {top / LIST} is missing; "
                      "name the PREFIX and DESTDIR of make install")
    for line in lines:
        if not line.endswith("/"):
            (top / line).unlink(missing_ok=True)
    folders = {Path(os.path.normpath(top / line)) for line in lines if line.endswith("/")}
    for folder in sorted(folders, reverse=True):  # what is inside first
        try:
            folder.rmdir()
        except OSError:  # used by other programs as well, or gone
            pass
    if not os.environ.get("DESTDIR") and os.geteuid() == 0:
        subprocess.run(["ldconfig"])
    print(f"removed from {top}")


def main(arguments: list) -> int:
    if len(arguments) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        if arguments == ["--remove"]:
            remove()
        else:
            install(ROOT / arguments[0])
    except (Problem, OSError) as problem:
        print(f"install: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
