# SPDX-License-Identifier: MIT
"""The results as a page: tables of figures and ratios, then every command."""

import os
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional

from contenders import METRICS, PLACES, Metric

NO_TIME = "there was no time for it"
PACKAGES = ("perftest", "ucx-utils", "libfabric-bin", "rdmacm-utils", "iperf3")

TITLES = {
    "rxe": ("On the kernel's rxe",
            "Debian's kernel in an emulated guest (QEMU without KVM, 2 CPUs), with two rxe "
            "devices that each reach themselves. What is emulated is slow: these figures "
            "compare programs in one guest with each other, and say nothing of hardware. Over "
            "several lanes a notification leaves when all bytes before it are acknowledged; "
            "a program with one QP finds its equal in the second row. Before 1.14 UCX's put uses one "
            "device however many it has; its larger messages use both."),
    "host": ("On a host without RDMA",
             "Two processes on one host. Soft devices of one user meet in shared memory; "
             "with `SENNIT_SOFT_SHM=off` they speak RoCEv2 on UDP, as they do between "
             "hosts."),
}


def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{found[1] if found else os.uname().machine}, {os.cpu_count()} CPUs"


def output(*command: str) -> str:
    """Nothing if the command fails or is not installed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version(package: str) -> str:
    found = output("dpkg-query", "-W", "-f=${Version}", package)
    return f"{package} {found}" if found else f"{package}: not installed"


def commit(root: Path) -> str:
    return output("git", "-C", str(root), "describe", "--always", "--dirty") or "unknown"


def times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


class Place:
    def __init__(self, name: str, raw: dict, tool: str) -> None:
        self.name, self.raw = name, raw
        self.cells = {(cell["contender"], cell["metric"]): cell for cell in raw["cells"]}
        self.contenders = [c for c in PLACES[name](tool)]
        self.base = self.contenders[0].name

    def figure(self, contender: str, metric: Metric) -> Optional[float]:
        cell = self.cells.get((contender, metric.name))
        return statistics.median(cell["values"]) if cell and cell["values"] else None

    def ratio(self, contender: str, metric: Metric) -> Optional[float]:
        """How many times as good the first contender, which is sennit, is."""
        ours, theirs = self.figure(self.base, metric), self.figure(contender, metric)
        if not ours or not theirs:
            return None
        return ours / theirs if metric.more else theirs / ours

    def cell_text(self, contender: str, metric: Metric) -> str:
        figure, ratio = self.figure(contender, metric), self.ratio(contender, metric)
        if figure is None:
            cell = self.cells.get((contender, metric.name))
            if not cell or not cell["commands"]:
                return "–"
            return "failed" if cell["problem"] else "no time"
        if contender == self.base or ratio is None:
            return number(figure)
        return f"{number(figure)} · **{times(ratio)}**"

    def table(self) -> List[str]:
        heads = [f"{m.title}, {m.unit}" for m in METRICS]
        lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(METRICS) + 1) + "|"]
        for contender in self.contenders:
            if any(key[0] == contender.name for key in self.cells):
                cells = [self.cell_text(contender.name, m) for m in METRICS]
                lines.append(f"| {contender.name} | " + " | ".join(cells) + " |")
        return lines

    def losses(self) -> List[str]:
        lines, compared = [], 0
        for contender in self.contenders[1:]:
            if contender.package == "sennit":
                continue
            lost = [(m, self.ratio(contender.name, m)) for m in METRICS]
            compared += sum(ratio is not None for _, ratio in lost)
            lost = [f"{m.title} ({times(1 / ratio)})" for m, ratio in lost
                    if ratio and ratio < 0.95]
            if lost:
                why = f": {contender.why}" if contender.why else ""
                lines.append(f"- **{contender.name}** is better at {', '.join(lost)}{why}.")
        return lines or ["Nowhere, this time." if compared else "No alternative was measured."]

    def failures(self) -> List[str]:
        lines = []
        for contender in self.contenders:
            titles: Dict[str, List[str]] = {}
            for metric in METRICS:
                cell = self.cells.get((contender.name, metric.name))
                if cell and cell["problem"] and not cell["values"]:
                    titles.setdefault(cell["problem"], []).append(metric.title)
            lines += [f"- **{contender.name}** has no figure for {', '.join(titles[problem])}: "
                      f"{problem}." for problem in titles]
        return ["### What failed", "", *lines, ""] if lines else []

    def commands(self) -> List[str]:
        lines = []
        for cell in self.raw["cells"]:
            if not cell["commands"]:
                continue
            metric = next(m for m in METRICS if m.name == cell["metric"])
            if cell["values"]:
                values = cell["values"]
                figure = (f"{number(statistics.median(values))} {metric.unit} "
                          f"[{number(min(values))} to {number(max(values))}, "
                          f"{len(values)} run{'s' * (len(values) > 1)}]")
            else:
                figure = f"no figure: {cell['problem'] or NO_TIME}"
            lines += [f"{cell['contender']}, {metric.title}: {figure}", "",
                      *(f"    {command}" for command in cell["commands"]), ""]
        return lines


def missing(place: Place) -> List[str]:
    return [f"Not measured, because it is not installed: {name} (Debian: {package})."
            for name, package in place.raw["missing"]]


def section(place: Place) -> List[str]:
    title, words = TITLES[place.name]
    return [f"## {title}", "", words, f"Kernel: {place.raw['kernel']}.", "",
            *place.table(), "",
            f"Each figure is the median; in bold, how many times as good *{place.base}* is, "
            "so that below 1 the other one wins.", *missing(place), "",
            *place.failures(), "### Where we lose, and why", "", *place.losses(), ""]


def page(raws: Dict[str, dict], tool: str, root: Path, problems: List[str],
         busy: float) -> str:
    places = [Place(name, raws[name], tool) for name in PLACES if name in raws]
    lines = ["<!-- SPDX-License-Identifier: MIT -->", "<!-- Made by bench/peers/run.py. -->",
             "# Beside others, in figures", "",
             "What a user would pick instead, on the same machine, in one go, by one command:",
             "", "    bench/peers/run.py --out docs/measured/benchmarks.md", "",
             f"{time.strftime('%Y-%m-%d', time.gmtime())}; {processor()}; sennit "
             f"{commit(root)}; " + "; ".join(map(version, PACKAGES)) +
             f". Before it began, others used {100 * busy:.0f} % of the processors.", "",
             "Bandwidths are of writes (or the nearest that there is) with many under way, in "
             "10^9 bits per second; latencies are half of the time there and back, the median "
             "or, of libfabric and rstream, which tell no other, the average. "
             "[method.md](method.md) says how we measure, "
             "[comparison.md](comparison.md) what the others can do.", ""]
    if busy > 0.1:
        lines += ["**The machine was busy with something else: these figures are of no use "
                  "but to show that the command works. Run it again.**", ""]
    for problem in problems:
        lines += [f"**Not measured:** {problem}", ""]
    for place in places:
        lines += section(place)
    lines += ["## Every figure with its command", "",
              "The server's command first, where there is one; then the client's.", ""]
    for place in places:
        lines += [f"### {TITLES[place.name][0]}", "", *place.commands()]
    return "\n".join(lines).rstrip() + "\n"
