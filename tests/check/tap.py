# SPDX-License-Identifier: MIT
"""What the checks of the tree share: its files, and results as TAP."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GENERATED = ("build", ".git")
CODE = re.compile(r"^/\*\n(?: \*(?: .*)?\n)*?((?: \*\t.*\n)(?: \*(?:\t.*)?\n)*)", re.M)


def files(*patterns: str):
    """Files of the tree by glob, without build folders."""
    found = set()
    for pattern in patterns:
        found.update(p for p in ROOT.glob(pattern)
                     if not p.relative_to(ROOT).parts[0].startswith(GENERATED))
    return sorted(found)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def first_code(header: Path) -> str:
    """What is indented in a header's first comment, up to the next text."""
    match = CODE.search(header.read_text())
    return re.sub(r"^ \*\t?", "", match[1], flags=re.M).strip() if match else ""


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def load(path: Path):
    """A script as a module, which dataclasses look for by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class Report:
    def __init__(self) -> None:
        self.count = self.failed = 0

    def check(self, what: str, problems: list) -> None:
        """A check holds if nothing speaks against it."""
        self.count += 1
        self.failed += bool(problems)
        print("not ok" if problems else "ok", self.count, "-", what)
        for problem in problems:
            print("#", str(problem).replace("\n", "\n# "))

    def end(self) -> None:
        print(f"1..{self.count}")
        sys.exit(1 if self.failed else 0)
