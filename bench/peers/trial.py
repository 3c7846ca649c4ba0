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
from typing import Dict, List

from contenders import METRICS, PLACES, Contender, Metric, NoFigure, Trial

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
                            stderr=subprocess.STDOUT, text=True, start_new_session=True,
                            env={**os.environ, **environment})


def end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_server(trial: Trial, process: subprocess.Popen) -> None:
    """Until it listens; of one that does so otherwise nothing can be seen."""
    deadline = time.monotonic() + SERVER_PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if trial.port and is_listening(trial.port):
            return
        time.sleep(0.05)
        if not trial.port and time.monotonic() > deadline - SERVER_PATIENCE_S + 1:
            return


def finish(client: subprocess.Popen) -> str:
    try:
        text, _ = client.communicate(timeout=CLIENT_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise NoFigure(f"it was not done after {CLIENT_PATIENCE_S} s") from None
    if client.returncode:
        raise NoFigure(f"status {client.returncode}: {text.strip()[-300:]}")
    return text


def run_clients(trial: Trial, metric: Metric) -> float:
    clients = [start(client, trial.environment) for client in trial.clients]
    try:
        return sum(trial.parse(finish(client), metric) for client in clients)
    finally:
        for client in clients:
            end(client)


def run(trial: Trial, metric: Metric) -> float:
    servers = [start(server, trial.environment) for server in trial.servers]
    try:
        if servers:
            wait_for_server(trial, servers[0])
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
        self.problem = ""
        self.trial = contender.make(metric, port)

    def measure(self) -> None:
        if self.trial is None or self.problem:
            return
        try:
            self.values.append(run(self.trial, self.metric))
        except (NoFigure, ValueError, KeyError, IndexError, OSError) as problem:
            # Once is bad luck, if it has worked before.
            self.problem = "" if self.values else str(problem) or type(problem).__name__

    def give_up_like(self, others: List["Cell"]) -> None:
        """One that has failed twice, and never worked, costs no more time."""
        same = [cell for cell in others if cell.contender is self.contender]
        if sum(bool(cell.problem) for cell in same) >= 2 and \
                not any(cell.values for cell in same):
            self.problem = self.problem or "not tried, after two failures"

    def raw(self) -> dict:
        return {"contender": self.contender.name, "metric": self.metric.name,
                "values": self.values, "problem": self.problem,
                "commands": shown(self.trial) if self.trial else []}


def measure_place(place: str, tool: str, rounds: int, budget_s: float,
                  save=lambda raw: None, only: str = "") -> dict:
    """In turn, and then again, so that a slow minute hits everybody."""
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
