#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/man.py: pages of functions and types, and no build where one is not documented."""

import subprocess
import tempfile
from pathlib import Path

from kit import ROOT, Cases

GOOD = """/* SPDX-License-Identifier: MIT */
/*
 * What it is about.
 *
 * Thread: owner, for every call here.
 */
struct snt_thing;
struct snt__inner;
#define SNT_THING(name) name

enum snt_colour {
	SNT_RED = 1, /* the default */
};

/* What a thing is made of. In
 * two lines. */
struct snt_thing_opts {
	size_t size;
	int weight; /* in grams */
	uint8_t colour; /* enum snt_colour */
};

/* Returns grams. */
typedef int (*snt_weigh_fn)(void *arg);

/**
 * snt_thing_make, snt_thing_mend - make a thing, or mend it
 * @opts: NULL for
 *	all defaults
 *
 * It is made. -Dashes and 'quotes' stay.
 *
 * Returns: 0, or
 *   -EINVAL  malformed
 *            in some way
 *   -ENOMEM, or another.
 */
SNT_API int snt_thing_make(const struct snt_thing_opts *opts);
SNT_API int snt_thing_mend(const struct snt_thing_opts *opts);

/**
 * snt_thing_end - end it
 */
SNT_API void snt_thing_end(struct snt_thing *thing);
"""


def make(text: str) -> tuple:
    with tempfile.TemporaryDirectory() as name:
        header = Path(name) / "thing.h"
        header.write_text(text)
        done = subprocess.run([str(ROOT / "scripts/man.py"), "functions", "1.0",
                               str(Path(name) / "man3"), str(header)],
                              capture_output=True, text=True)
        pages = {p.name: p.read_text() for p in (Path(name) / "man3").glob("*")}
    return done, pages


def pages():
    """a page has what the header says"""
    done, found = make(GOOD)
    if done.returncode or sorted(found) != [
            "SNT_THING.3", "sennit_thing.3", "snt_colour.3", "snt_thing.3", "snt_thing_end.3",
            "snt_thing_make.3", "snt_thing_mend.3", "snt_thing_opts.3", "snt_weigh_fn.3"]:
        yield f"{done.stderr} {sorted(found)}"
        return
    page = found["snt_thing_make.3"]
    for line in ("snt_thing_make, snt_thing_mend \\- make a thing, or mend it",
                 ".B #include <sennit/thing.h>", "\\fBint snt_thing_make(const struct "
                 "snt_thing_opts *opts);\\fP", ".I opts", "all defaults",
                 "It is made. \\-Dashes and \\(aqquotes\\(aq stay.",
                 ".B \\-EINVAL", "in some way", ".B \\-ENOMEM", "or another.",
                 ".SH RETURN VALUE", ".SH THREADS", "Owner, for every call here.",
                 "struct snt_thing_opts {", ".BR snt_thing_end (3)"):
        if line not in page.splitlines():
            yield f"there is no {line} in {page}"
    if "sennit_thing \\- What it is about" not in found["sennit_thing.3"].splitlines():
        yield found["sennit_thing.3"]
    if found["snt_thing_mend.3"] != ".so man3/snt_thing_make.3\n":
        yield found["snt_thing_mend.3"]


def types():
    """a type's page has its members, with what is said of them, and what uses it"""
    _, found = make(GOOD)
    expected = {
        "snt_thing_opts.3": [
            "snt_thing_opts \\- options of snt_thing_make()",
            ".B #include <sennit/thing.h>", "        int weight; /* in grams */",
            "What a thing is made of. In", "two lines.",
            "struct snt_thing_opts name = SNT_INIT(name);",
            "        SNT_RED = 1, /* the default */", ".BR snt_thing_make (3),"],
        "snt_colour.3": ["snt_colour \\- constants in snt_thing_opts",
                         "        SNT_RED = 1, /* the default */", ".BR sennit_thing (3)"],
        "snt_weigh_fn.3": ["typedef int (*snt_weigh_fn)(void *arg);", "Returns grams."],
        "snt_thing.3": [".so man3/sennit_thing.3"],
        "SNT_THING.3": [".so man3/sennit_thing.3"],
        "sennit_thing.3": [".SH TYPES", ".BR snt_colour (3)", ".BR snt_thing_opts (3)"],
    }
    for name, lines in expected.items():
        page = found.get(name, "")
        for line in lines:
            if line not in page.splitlines():
                yield f"there is no {line} in {name}: {page}"


def refusals():
    """what is not documented, or not there, stops it with a name"""
    for before, after, text in [
            ("/**\n * snt_thing_end - end it\n */\n", "", "snt_thing_end has no documentation"),
            ("SNT_API int snt_thing_mend(const struct snt_thing_opts *opts);\n", "",
             "what follows declares snt_thing_make"),
            ("@opts", "@optns", "snt_thing_make has no parameter optns"),
            ("snt_thing_end - end it", "ends it", "is not `snt_noun_verb"),
            ("snt_thing_opts {", "snt_thing_end {", "is a function and a type")]:
        done, _ = make(GOOD.replace(before, after))
        if done.returncode != 1 or text not in done.stderr:
            yield f"{text}: {done.returncode} {done.stderr}"


def main() -> None:
    cases = Cases()
    cases.run(pages)
    cases.run(types)
    cases.run(refusals)
    cases.report.end()


main()
