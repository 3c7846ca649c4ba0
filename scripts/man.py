#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes manual pages: of the library from its headers, of the tool from its own help.

Functions, structures and enumerations have a page each; so have headers.

usage: scripts/man.py functions VERSION FOLDER HEADER...
       scripts/man.py commands SENNIT FOLDER

Fails, naming it, if a function has no documentation, or a page would say something that
is not there.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"/\*\*\n(.*?)\*/\n(.*?)(?=\n\n|\Z)", re.S)  # and what it is of
DECLARATION = re.compile(r"^SNT_API\b[^;]*;", re.M)
NAME = re.compile(r"\b(snt_\w+)\(")
TITLE = re.compile(r"^((?:snt_\w+)(?:, snt_\w+)*) - (.+)$")
TYPE = re.compile(r"(?:^/\* ((?:(?!\*/).)*?) ?\*/\n)?"  # what is said right before it
                  r"^((?:struct|enum) (snt_(?!_)\w+) \{\n.*?^\};|"
                  r"typedef [^;{]*?\(\*(snt_\w+)\)[^;{]*;)", re.M | re.S)
OPAQUE = re.compile(r"^(?:struct (snt_(?!_)\w+);|#define (SNT_(?!_)\w+)\()", re.M)
SECTIONS = {"Ownership": "OWNERSHIP", "Thread": "THREADS", "Returns": "RETURN VALUE"}
SECTION = re.compile(r"^(" + "|".join(SECTIONS) + r"): ?(.*)$")


class Wrong(Exception):
    pass


# Text to roff

def escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith((".", "'", "\\(aq")) else text


def verbatim(lines: list) -> list:
    return [".PP", ".nf", ".RS 4", *(escape(line.expandtabs(8)) or "" for line in lines),
            ".RE", ".fi"]


@dataclass
class Writer:
    """Paragraphs, blocks that stand as they are, and lists of terms, from plain lines."""
    out: list = field(default_factory=list)

    def text(self, lines: list) -> None:
        lines = [line.rstrip() for line in lines]
        position = 0
        while position < len(lines):
            position = self.part(lines, position)

    def part(self, lines: list, at: int) -> int:
        line = lines[at]
        if not line:
            return at + 1
        if at + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[at + 1]):
            self.out += [f".SS {escape(line)}"]
            return at + 2
        if line.startswith("\t"):
            return self.block(lines, at)
        if re.match(r"  +-E[A-Z0-9]+", line):
            return self.terms(lines, at)
        self.out += [".PP"] if not at or not lines[at - 1] or lines[at - 1].startswith(
            "\t") else []
        self.out += [escape(line.strip())]
        return at + 1

    def block(self, lines: list, at: int) -> int:
        end = at
        while end < len(lines) and (lines[end].startswith("\t") or not lines[end]):
            end += 1
        while not lines[end - 1]:
            end -= 1
        self.out += verbatim([line[1:] for line in lines[at:end]])
        return end

    def terms(self, lines: list, at: int) -> int:
        """`  -EINVAL    what`, with what is indented below it."""
        term, what = re.match(r" +(-E[A-Z0-9]+(?:, -E[A-Z0-9]+)*),? *(.*)",
                              lines[at]).groups()
        self.out += [".TP", f".B {escape(term)}", escape(what) or "\\&"]
        at += 1
        while at < len(lines) and re.match(r"   +[^ -]", lines[at]):
            self.out += [escape(lines[at].strip())]
            at += 1
        if at < len(lines) and lines[at] and not re.match(r"  +-E", lines[at]):
            self.out += [".PP"]
        return at


# Headers

def comment_lines(text: str) -> list:
    return [re.sub(r"^ ?\*( |(?=\t)|$)", "", line) for line in text.split("\n")]


@dataclass
class Function:
    names: list
    summary: str
    parameters: list  # of (name, lines)
    body: list
    sections: dict
    declarations: list


@dataclass
class Type:
    """A structure, an enumeration, or a function's type."""
    name: str
    text: str
    comment: list

    @property
    def is_sized(self) -> bool:
        return " {\n\tsize_t size;" in self.text


@dataclass
class Header:
    path: Path
    introduction: list
    functions: list
    types: dict  # of Type, by name
    opaque: list  # structures that are declared only, and macros with arguments

    @property
    def include(self) -> str:
        return f"<sennit/{self.path.name}>"

    @property
    def page(self) -> str:
        return "sennit" if self.path.stem == "sennit" else f"sennit_{self.path.stem}"

    @property
    def summary(self) -> str:
        """The beginning of its first sentence."""
        text = " ".join(self.introduction)
        first = re.split(r"[.:;]( |$)", text, maxsplit=1)[0].strip()
        return first or f"functions of {self.path.name}"

    def default(self, key: str) -> list:
        """What the introduction says for every call, such as its thread."""
        return parse_sections(self.introduction)[1].get(key, [])


def parse_parameters(lines: list) -> tuple:
    parameters = []
    while lines and (lines[0].startswith("@") or (parameters and lines[0].startswith("\t"))):
        line = lines.pop(0)
        if line.startswith("@"):
            name, _, text = line[1:].partition(": ")
            parameters.append((name, [text]))
        else:
            parameters[-1][1].append(line.strip())
    return parameters, lines


def parse_sections(lines: list) -> tuple:
    body, sections, current = [], {}, None
    for line in lines:
        match = SECTION.match(line)
        if match:
            current = sections.setdefault(match[1], [])
            line = match[2]
        (body if current is None else current).append(line)
    return body, sections


def parse_function(comment: str, code: str, where: str) -> Function:
    lines = comment_lines(comment)
    match = TITLE.match(lines[0])
    if not match:
        raise Wrong(f"{where}: \"{lines[0]}\" is not `snt_noun_verb - what it does`")
    declarations = DECLARATION.findall(code)
    names = [name.strip() for name in match[1].split(",")]
    declared = [NAME.search(text)[1] for text in declarations]
    if sorted(names) != sorted(declared):
        raise Wrong(f"{where}: {', '.join(names)}: what follows declares "
                    f"{', '.join(declared) or 'nothing'}")
    parameters, rest = parse_parameters(lines[1:])
    for name, _ in parameters:
        if not any(re.search(rf"\b{name}\b", text) for text in declarations):
            raise Wrong(f"{where}: {names[0]} has no parameter {name}")
    body, sections = parse_sections(rest)
    return Function(names, match[2], parameters, body, sections, declarations)


def parse_introduction(text: str) -> list:
    """The first comment that is the header's own, and not a declaration's."""
    match = re.search(r"^/\*\n(.*?)\*/", text, re.M | re.S)
    first = re.search(r"^/\*\*\n", text, re.M)
    if match and not (first and first.start() < match.start()):
        return comment_lines(match[1])
    if not first:  # a header that includes others says it in a line
        return re.findall(r"^/\* (?!SPDX)(.*) \*/$", text, re.M)[:1]
    return []


def parse_header(path: Path) -> Header:
    text = path.read_text()
    functions = [parse_function(comment, code, path.name)
                 for comment, code in BLOCK.findall(text)]
    documented = {name for function in functions for name in function.names}
    for declaration in DECLARATION.findall(text):
        name = NAME.search(declaration)[1]
        if name not in documented:
            raise Wrong(f"{path.name}: {name} has no documentation")
    types = [Type(match[3] or match[4], match[2], comment_lines(match[1] or ""))
             for match in TYPE.finditer(text)]
    return Header(path, parse_introduction(text), functions,
                  {each.name: each for each in types},
                  [struct or macro for struct, macro in OPAQUE.findall(text)])


# Pages

def title(name: str, section: int, version: str, summary: str) -> list:
    return [f'.TH {escape(name)} {section} "" "sennit {version}" "sennit"', ".SH NAME",
            f"{name} \\- {escape(summary)}"]


def references(names: list, section: int) -> list:
    return [f".BR {escape(name)} ({section}){',' if name != names[-1] else ''}"
            for name in names]


def used_types(function: Function, types: dict) -> list:
    words = re.findall(r"\bsnt_\w+", "\n".join(function.declarations))
    shown = [name for name in dict.fromkeys(words) if name in types]
    return list(dict.fromkeys(shown + enums_inside(shown, types)))


def enums_inside(names: list, types: dict) -> list:
    found = re.findall(r"\benum (snt_\w+)", "\n".join(types[name].text for name in names))
    return [name for name in dict.fromkeys(found) if name in types and name not in names]


def function_page(function: Function, header: Header, types: dict, version: str) -> str:
    writer = Writer(title(", ".join(function.names), 3, version, function.summary))
    writer.out[0] = title(function.names[0], 3, version, "")[0]
    writer.out += [".SH SYNOPSIS", ".nf", f".B #include {header.include}", ".PP"]
    for declaration in function.declarations:
        text = re.sub(r"^SNT_API ", "", declaration)
        writer.out += [f"\\fB{escape(line.expandtabs(8)[8 * bool(i):] if i else line)}\\fP"
                       for i, line in enumerate(text.split("\n"))]
    writer.out += [".fi", ".SH DESCRIPTION"]
    body = [line for line in function.body]
    while body and not body[0]:
        body.pop(0)
    summary = function.summary[0].upper() + function.summary[1:] + "."
    writer.text(body or [summary])
    for name, lines in function.parameters:
        writer.out += [".TP", f".I {escape(name)}", *map(escape, lines)]
    for key, heading in SECTIONS.items():
        lines = function.sections.get(key) or header.default(key)
        if lines:
            writer.out += [f".SH {heading}"]
            writer.text([lines[0][:1].upper() + lines[0][1:], *lines[1:]])
    for name in used_types(function, types):
        if ".SH STRUCTURES" not in writer.out:
            writer.out += [".SH STRUCTURES"]
        writer.out += verbatim(types[name].text.split("\n"))
    others = [f.names[0] for f in header.functions if f is not function]
    writer.out += [".SH SEE ALSO", *references([header.page, *others], 3)]
    return "\n".join(writer.out) + "\n"


def functions_with(name: str, headers: list) -> list:
    """The functions that take a type, then those whose documentation names it."""
    functions = [function for header in headers for function in header.functions]
    word = re.compile(rf"\b{name}\b")
    take = [f for f in functions if word.search("\n".join(f.declarations))]
    tell = [f for f in functions if f not in take and word.search("\n".join(
        f.body + sum((lines for _, lines in f.parameters), [])))]
    return [f.names[0] for f in take + tell]


def type_summary(of: Type, headers: list) -> str:
    """From its name, and from what has to do with it: comments say more than a title."""
    kinds = {"enum": "constants", "typedef": "function"}
    kind = {"opts": "options", "info": "result"}.get(
        of.name.rpartition("_")[2], kinds.get(of.text.split()[0], "structure"))
    functions = functions_with(of.name, headers)
    if functions:
        return f"{kind} of " + " and ".join(f"{name}()" for name in functions[:2])
    word = re.compile(rf"\b{of.name}\b")
    users = [other.name for header in headers for other in header.types.values()
             if other is not of and word.search(other.text)]
    home = next(header for header in headers if of in header.types.values())
    return f"{kind} in " + (" and ".join(users[:2]) or home.include)


def type_page(of: Type, header: Header, headers: list, version: str) -> str:
    types = {name: each for other in headers for name, each in other.types.items()}
    writer = Writer(title(of.name, 3, version, type_summary(of, headers)))
    writer.out += [".SH SYNOPSIS", f".B #include {header.include}",
                   *verbatim(of.text.split("\n")), ".SH DESCRIPTION"]
    writer.text(of.comment if any(of.comment) else [f"See {header.page}(3)."])
    if of.is_sized:
        writer.out += [".PP", "Begins with its size:"]
        writer.out += verbatim([f"struct {of.name} name = SNT_INIT(name);"])
    for name in enums_inside([of.name], types):
        if ".SH CONSTANTS" not in writer.out:
            writer.out += [".SH CONSTANTS"]
        writer.out += verbatim(types[name].text.split("\n"))
    others = functions_with(of.name, headers) + ["sennit_api"] * of.is_sized
    writer.out += [".SH SEE ALSO", *references([header.page, *others], 3)]
    return "\n".join(writer.out) + "\n"


def home_of(name: str, headers: list) -> Header:
    """The header that is named like an opaque structure, or the first that declares it."""
    declaring = [header for header in headers if name in header.opaque]
    named = [header for header in declaring if f"snt_{header.path.stem}" == name]
    return (named or declaring)[0]


def header_page(header: Header, headers: list, version: str) -> str:
    writer = Writer(title(header.page, 3, version, header.summary))
    writer.out += [".SH SYNOPSIS", f".B #include {header.include}", ".SH DESCRIPTION"]
    writer.text(header.introduction or [f"The functions of {header.path.name}."])
    if header.functions:
        writer.out += [".SH FUNCTIONS"]
    for function in header.functions:
        writer.out += [".TP", f".BR {escape(function.names[0])} (3)",
                       escape(function.summary)]
    if header.types:
        writer.out += [".SH TYPES"]
    for each in header.types.values():
        writer.out += [".TP", f".BR {escape(each.name)} (3)",
                       escape(type_summary(each, headers))]
    # The header that includes all others is where one begins.
    others = [other for other in headers if header.page == "sennit" and other is not header]
    if others:
        writer.out += [".SH HEADERS"]
    for other in others:
        writer.out += [".TP", f".BR {escape(other.page)} (3)", escape(other.summary)]
    writer.out += [".SH SEE ALSO", ".BR sennit (1)"]
    return "\n".join(writer.out) + "\n"


def clean_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def make_functions(version: str, folder: str, *paths: str) -> None:
    headers = [parse_header(Path(path)) for path in paths]
    types = {name: each for header in headers for name, each in header.types.items()}
    for function in (function for header in headers for function in header.functions):
        if set(function.names) & set(types):
            raise Wrong(f"{function.names[0]} is a function and a type: one page for two")
    out = clean_folder(Path(folder))
    for name in {name for header in headers for name in header.opaque} - set(types):
        home = home_of(name, headers)
        (out / f"{name}.3").write_text(f".so man3/{home.page}.3\n")
    for header in headers:
        for each in header.types.values():
            (out / f"{each.name}.3").write_text(
                type_page(each, header, headers, version))
        (out / f"{header.page}.3").write_text(header_page(header, headers, version))
        for function in header.functions:
            first, *others = function.names
            (out / f"{first}.3").write_text(
                function_page(function, header, types, version))
            for name in others:
                (out / f"{name}.3").write_text(f".so man3/{first}.3\n")


def make_commands(tool: str, folder: str) -> None:
    def help_of(*words: str) -> str:
        return subprocess.run([tool, "help", *words], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    out = clean_folder(Path(folder))
    (out / "sennit.1").write_text(help_of("--man"))
    for line in help_of("--json").splitlines():
        name = json.loads(line)["name"]
        (out / f"sennit-{name}.1").write_text(help_of("--man", name))


def main() -> int:
    makers = {"functions": make_functions, "commands": make_commands}
    if len(sys.argv) < 4 or sys.argv[1] not in makers:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        makers[sys.argv[1]](*sys.argv[2:])
    except Wrong as wrong:
        print(f"man: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
