#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The report in a browser: no complaint on its console, and all plots drawn.

usage: page_test.py SENNIT
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kit import Tool

from tap import Report

# Paper of 210 mm, less its margins, has so many pixels.
WIDTHS = {"phone": 390, "desktop": 1280, "sheet of paper": 718}
# Added to a copy of the page: what the browser has made of it, as its title.
PROBE = """<script>
const plots = [...document.querySelectorAll("svg[role=img]")].map(svg => ({
  name: svg.querySelector("title").textContent,
  width: svg.getBoundingClientRect().width,
  height: svg.getBoundingClientRect().height,
  lines: [...svg.querySelectorAll("path:not(.g)")]
    .filter(path => path.getBBox().width + path.getBBox().height > 0).length,
}));
document.title = JSON.stringify({plots, wide: document.documentElement.scrollWidth,
  room: document.documentElement.clientWidth,
  cut: [...document.querySelectorAll(".wide")].filter(e => e.scrollWidth > e.clientWidth).length});
</script>"""


def browse(browser: str, page: Path, width: int):
    done = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={page.parent}/profile", f"--window-size={width},900", "--dump-dom",
         page.as_uri()], capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert title, f"no page: {done.stderr[-2000:]}"
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return json.loads(title[1].replace("&quot;", '"')), complaints


def drawn(browser: str, page: Path, width: int):
    seen, complaints = browse(browser, page, width)
    yield from complaints
    if len(seen["plots"]) != 5:
        yield f"{len(seen['plots'])} plots"
    for plot in seen["plots"]:
        if plot["lines"] < 2 or plot["width"] < 250 or plot["height"] < 150:
            yield f"not drawn: {plot}"
    if seen["wide"] > seen["room"]:
        yield f"{seen['wide']} wide, in a window of {seen['room']}"
    # On screens tables can be moved.
    if "media all" in page.read_text() and seen["cut"]:
        yield f"{seen['cut']} tables are cut off"


def main() -> None:
    browser = shutil.which("chromium")
    if not browser:
        print("1..0 # SKIP chromium is not installed (Debian: chromium)")
        return
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "out.html")
        done = Tool(sys.argv[1]).run(
            "--local", "--op", "write,send", "--test", "all", "--size", "64,4k,64k",
            "--lanes", "1,4", "--duration", "50ms", "--runs", "2", "--report", str(page))
        assert done.returncode == 0, done.stderr
        page.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
        for name, width in WIDTHS.items():
            if name == "sheet of paper":
                page.write_text(page.read_text().replace("@media print", "@media all"))
            report.check(f"drawn on a {name}", list(drawn(browser, page, width)))
    report.end()


main()
