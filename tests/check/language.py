#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Comments, texts and pages speak of things by name: no "he", "who" or "nobody" for them.

A sentence about a thread, a process or a device that says "who sleeps" or "nobody listens"
hides which one is meant. Programs are not people; users, readers and developers are.
"""

import io
import re
import tokenize

from tap import ROOT, Report, files, name

# Of people one may say "who", directly after naming them.
PEOPLE = (r"(?:users?|developers?|engineers?|people|readers?|operators?|those|authors?|"
          r"newcomers?|owners?|RPC)")
TELLTALE = re.compile(r"(?<!['`{\w-])(?:[Hh]e|[Hh]im|[Hh]is|[Hh]imself|[Ss]omebody|[Nn]obody|"
                      r"[Ee]verybody|[Ww]hoever|[Ww]hom?)(?!['`\w-])")
EXEMPT = re.compile(rf"\b{PEOPLE}\b[^.:;]{{0,40}}\bwho\b|^\W*Who\b[^.]*\?|"
                    r"\buser nobody\b|^\"nobody\"$", re.I)

# They quote what this looks for.
QUOTING = {ROOT / "tests/check/language.py", ROOT / "tests/check/selftest.py"}

C_TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.S)
HASH_TEXT = re.compile(r"(?:^|\s)#[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.M)
SENTENCE = re.compile(r"[^.!?:;|]+[.!?:;|]?")


def python_texts(source: str):
    """Comments and strings, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def texts(path):
    source = path.read_text(errors="replace")
    if path.suffix == ".md":
        # What programs print is checked where it is printed.
        yield 1, re.sub(r"^(?: {4}|\t).*$|```.*?^```", lambda m: "\n" * m[0].count("\n"),
                        source, flags=re.M | re.S)
    elif path.suffix == ".py":
        yield from python_texts(source)
    else:
        pattern = C_TEXT if path.suffix in (".c", ".h") else HASH_TEXT
        for found in pattern.finditer(source):
            yield source.count("\n", 0, found.start()) + 1, found[0]


def telltales(path):
    for line, text in texts(path):
        for sentence in SENTENCE.finditer(text):
            plain = re.sub(r"\s*\n[\s*#/]*", " ", sentence[0])
            if TELLTALE.search(plain) and not EXEMPT.search(plain.strip()):
                at = line + text.count("\n", 0, sentence.start())
                yield f"{name(path)}:{at}: {plain.strip()[:90]}"


def main() -> None:
    report = Report()
    for what, patterns in {
        "the library": ["include/**/*.h", "src/**/*.[ch]", "preload/**/*.[ch]",
                        "nccl/**/*.[ch]"],
        "programs": ["tools/**/*.[ch]", "examples/*.[ch]", "bench/**/*.[ch]",
                     "bench/**/*.py", "scripts/*"],
        "pages": ["*.md", "docs/**/*.md", "tests/**/*.md"],
        "tests": ["tests/**/*.[ch]", "tests/**/*.py", "tests/**/*.sh", "tests/**/meson.build"],
    }.items():
        found = [problem for path in files(*patterns)
                 if path.is_file() and path not in QUOTING for problem in telltales(path)]
        report.check(f"{what}: things are called by name", found)
    report.end()


if __name__ == "__main__":
    main()
