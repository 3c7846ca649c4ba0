# SPDX-License-Identifier: MIT
"""Runs trials: servers, then clients, with a limit on everything."""

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Tuple

from contenders import METRICS, PLACES, Contender, Metric, NoFigure, Trial
from reason import complaint, reason

CLIENT_PATIENCE_S = 40
SERVER_PATIENCE_S = 10
FIRST_PORT = 21000


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def is_listening(port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[1].endswith(wanted) and words[3] == "0A":
                return True
    return False


def start(command: List[str], environment: Dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="replace",
                            start_new_session=True, env={**os.environ, **environment})


def end(process: subprocess.Popen) -> Tuple[str, str]:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()


def wait_for_servers(trial: Trial, processes: List[subprocess.Popen]) -> None:
    """Until they listen; of one that does so otherwise nothing can be seen."""
    deadline = time.monotonic() + SERVER_PATIENCE_S
    while time.monotonic() < deadline and all(one.poll() is None for one in processes):
        if trial.port and all(is_listening(trial.port + i) for i in range(len(processes))):
            return
        time.sleep(0.05)
        if not trial.port and time.monotonic() > deadline - SERVER_PATIENCE_S + 1:
            return


def said(words: str) -> str:
    return f", and said `{words}`" if words else ""


def how_it_ended(status: int) -> str:
    return f"it ended by {signal.Signals(-status).name}" if status < 0 else \
        f"it ended with status {status}"


def figure(trial: Trial, metric: Metric, client: subprocess.Popen) -> float:
    try:
        text, errors = client.communicate(timeout=CLIENT_PATIENCE_S)
    except subprocess.TimeoutExpired:
        text, errors = end(client)
        raise NoFigure(f"it was not done after {CLIENT_PATIENCE_S} s"
                       + said(complaint(errors, text))) from None
    if client.returncode:
        raise NoFigure(how_it_ended(client.returncode) + said(reason(errors, text)))
    try:
        value = trial.parse(text, metric)
    except (ValueError, LookupError, TypeError):
        raise NoFigure("it printed no figure" + said(reason(errors, text))) from None
    # perftest, if a busy machine has spoilt its idea of the clock.
    if value <= 0:
        raise NoFigure(f"it printed a figure of {value:g}" + said(complaint(errors, text)))
    return value


def run_clients(trial: Trial, metric: Metric) -> float:
    clients = [start(client, trial.environment) for client in trial.clients]
    try:
        return sum(figure(trial, metric, client) for client in clients)
    finally:
        for client in clients:
            end(client)


def run(trial: Trial, metric: Metric) -> float:
    servers = [start(server, trial.environment) for server in trial.servers]
    try:
        if servers:
            wait_for_servers(trial, servers)
        # Of one that does not listen by TCP it is not known when it is ready.
        for _ in range(0 if trial.port or not servers else 3):
            try:
                return run_clients(trial, metric)
            except NoFigure:
                if servers[0].poll() is not None:
                    raise
        return run_clients(trial, metric)
    finally:
        for server in servers:
            end(server)


def shown(trial: Trial) -> List[str]:
    """Both ends' commands, as one would type them."""
    settings = [f"{name}={value}" for name, value in trial.environment.items()
                if name != "UCX_WARN_UNUSED_ENV_VARS"]
    return [" ".join([*settings, shlex.join([Path(command[0]).name, *command[1:]])])
            for command in trial.servers + trial.clients]


class Cell:
    """One contender and one metric: all its figures, or why there are none."""

    def __init__(self, contender: Contender, metric: Metric, port: int) -> None:
        self.contender, self.metric = contender, metric
        self.values: List[float] = []
        self.failures = 0
        self.problem = ""
        self.trial = contender.make(metric, port)

    def measure(self) -> None:
        # Once is bad luck.
        if self.trial is None or (self.failures > 1 and not self.values):
            return
        try:
            self.values.append(run(self.trial, self.metric))
            self.problem = ""
        except (NoFigure, OSError) as problem:
            self.failures += 1
            self.problem = "" if self.values else str(problem)

    def give_up_like(self, others: List["Cell"]) -> None:
        """One that has failed twice, and never worked, costs no more time."""
        same = [cell for cell in others if cell.contender is self.contender]
        if sum(cell.failures for cell in same) >= 2 and not any(cell.values for cell in same):
            self.failures = max(self.failures, 2)
            self.problem = self.problem or "it was not tried, after two failures"

    def raw(self) -> dict:
        return {"contender": self.contender.name, "metric": self.metric.name,
                "values": self.values, "problem": self.problem,
                "commands": shown(self.trial) if self.trial else []}


def measure_place(place: str, tool: str, rounds: int, budget_s: float,
                  save=lambda raw: None, only: str = "") -> dict:
    """In turn, and then again, so that a slow minute hits all of them."""
    begin = time.monotonic()
    contenders = [c for c in PLACES[place](tool) if only in c.name]
    present = [contender for contender in contenders if contender.present()]
    cells = [Cell(contender, metric, FIRST_PORT + 4 * number)
             for number, (contender, metric) in enumerate(
                 (c, m) for c in present for m in METRICS)]
    result = {"missing": [[c.name, c.package] for c in contenders if not c.present()],
              "kernel": " ".join(os.uname()[i] for i in (0, 2))}
    for number in range(rounds):
        for cell in cells:
            if time.monotonic() - begin > budget_s:
                say(f"{place}: time is up in round {number + 1} of {rounds}")
                return {**result, "cells": [cell.raw() for cell in cells]}
            cell.give_up_like(cells)
            cell.measure()
            if cell.trial:
                say(f"{place} {number + 1}/{rounds} {cell.contender.name}: "
                    f"{cell.metric.title}: "
                    f"{cell.problem or f'{statistics.median(cell.values):.4g} {cell.metric.unit}'}")
            save({**result, "cells": [cell.raw() for cell in cells]})
    return {**result, "cells": [cell.raw() for cell in cells]}


def save_to(path: Path):
    def save(raw: dict) -> None:
        path.write_text(json.dumps(raw))
    return save
