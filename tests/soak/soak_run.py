"""Lets nodes train together through random troubles, and judges whether the swarm bears them.

Run it with `make soak`, or `python tests/soak/soak_run.py --help`. The same seed brings the same
troubles at the same times; a trouble waits while a machine is too slow to have all nodes up.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from soak_peers import SoakFailed
from soak_report import judge_end, last_loss, lines, make_figures
from soak_script import Kind, Plan, write_phases, write_script
from soak_swarm import HEAL_S, START_S, SoakSwarm
from soak_troubles import LEAVE_S, Troubles

from neuroswarm.demo.children import Children
from neuroswarm.testing.waiting import wait_until

LOOK_S = 0.3
SAY_S = 15.0
MEASURE_S = 5.0
WITHIN_S = 2 * 24 * 3600.0
"""A bound for waits that have their own."""


def say(text: str) -> None:
    """One line for people."""
    print(text, flush=True)  # noqa: T201


class Soak:
    """One run."""

    def __init__(self, plan: Plan, folder: Path, children: Children) -> None:
        """Prepare to work in `folder`."""
        self.plan = plan
        self.swarm = SoakSwarm(plan, folder, children)
        self.script, self.phases = write_script(plan), write_phases(plan)
        self.troubles = Troubles(self.swarm, self.script, self.phases)
        self._began = self._ended = time.time()
        self._next: dict[str, float] = {}
        self._loads: list[float] = []

    def run(self) -> dict[str, Any]:
        """Do it all; SoakFailed says what the swarm did not bear."""
        self._start()
        self._began = self._ended = time.time()
        wait_until(self._is_over, within_s=WITHIN_S)
        self._ended = time.time()
        self._stop()
        figures = self.figures()
        judge_end(self.plan, figures)
        return figures

    def figures(self) -> dict[str, Any]:
        """All that is known so far."""
        ended = max(self._ended, time.time() if self._ended == self._began else self._ended)
        figures = make_figures(self.plan, self.swarm, self.troubles, self._began, ended)
        loads = self._loads or [os.getloadavg()[0]]
        return {
            **figures,
            "load": {
                "mean": round(statistics.fmean(loads), 2),
                "most": max(loads),
                "cores": os.cpu_count(),
            },
            "script": [asdict(trouble) for trouble in self.script],
            "phases": [asdict(phase) for phase in self.phases],
        }

    def _start(self) -> None:
        swarm = self.swarm
        self._next = dict.fromkeys(("look", "say", "measure"), 0.0)
        first, *others = range(len(swarm.peers))
        swarm.start(first, is_new=True, is_founder=True)
        self._wait(lambda: swarm.peers[first].is_ready, START_S, "the first node is not ready")
        for number in others:
            swarm.start(number, is_new=True)
        began = time.time()
        self._wait(lambda: swarm.is_one(began), START_S + HEAL_S, "the nodes do not meet")

    def _wait(self, is_done: Callable[[], bool], within_s: float, complaint: str) -> None:
        began = time.time()

        def is_over() -> bool:
            self._look()
            if time.time() - began > within_s * self.swarm.load_factor():
                raise SoakFailed(f"{complaint} after {time.time() - began:.0f} s")
            return is_done()

        wait_until(is_over, within_s=WITHIN_S)

    def _is_over(self) -> bool:
        self._look()
        elapsed_s = time.time() - self._began
        if elapsed_s >= 60 * self.plan.minutes and not self.plan.kinds:
            self.troubles.drop_waiting()
        self.troubles.advance(elapsed_s)
        return elapsed_s >= 60 * self.plan.minutes and self.troubles.is_over

    def _look(self) -> None:
        if self._is_due("measure", MEASURE_S):
            self._loads.append(os.getloadavg()[0])
            for peer in self.swarm.peers:
                peer.measure()
        if self._is_due("look", LOOK_S):
            self.swarm.look()
        if self._is_due("say", SAY_S):
            self._say_progress()

    def _is_due(self, what: str, every_s: float) -> bool:
        if time.monotonic() < self._next[what]:
            return False
        self._next[what] = time.monotonic() + every_s
        return True

    def _say_progress(self) -> None:
        swarm, loss = self.swarm, last_loss(self.swarm.peers)
        say(
            f"{time.time() - self._began:6.0f} s  round {swarm.round:<4d} "
            f"{len(swarm.ready())}/{len(swarm.peers)} up  "
            f"loss {'?' if loss is None else format(loss, '.3f')}  "
            f"load {os.getloadavg()[0]:.1f}  faults: {self.troubles.describe()}"
        )

    def _stop(self) -> None:
        began = time.time()
        for peer in self.swarm.peers:
            peer.signal(signal.SIGTERM)

        def are_gone() -> bool:
            if time.time() - began > LEAVE_S * self.swarm.load_factor():
                raise SoakFailed(f"not all nodes have left {time.time() - began:.0f} s later")
            have_left = [peer.finish_leaving() for peer in self.swarm.peers]
            return all(have_left)

        wait_until(are_gone, within_s=WITHIN_S)


def run_soak(plan: Plan, folder: Path) -> tuple[dict[str, Any], str | None]:
    """Run; returns the figures, and why it failed if it did. Leaves no process behind."""
    with Children() as children:
        soak = Soak(plan, folder, children)
        try:
            return soak.run(), None
        except SoakFailed as error:
            return soak.figures(), str(error)


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if the swarm did not bear it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length (default: 60)")
    parser.add_argument("--seed", type=int, help="of all troubles; default: a new one")
    parser.add_argument("--nodes", type=int, default=6, help="number of nodes, at least 4")
    parser.add_argument(
        "--kinds", default="", help=f"only these, in this order: {','.join(Kind.__members__)}"
    )
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--keep", type=Path, help="new folder for logs and states")
    chosen = parser.parse_args(arguments)
    if chosen.nodes < 4:
        parser.error("at least 4 nodes: two are spared, two may go at once")
    if unknown := set(filter(None, chosen.kinds.split(","))) - set(Kind.__members__):
        parser.error(f"no such kinds: {', '.join(unknown)}")
    kinds = tuple(Kind[name] for name in chosen.kinds.split(",") if name)
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="soak-"))
    say(f"seed {seed}, {chosen.nodes} nodes, {chosen.minutes:g} minutes, in {folder}")
    figures, failure = run_soak(Plan(seed, chosen.minutes, chosen.nodes, kinds), folder)
    for line in lines({k: v for k, v in figures.items() if k not in ("script", "phases")}):
        say(line)
    if chosen.json:
        told = {"borne": failure is None, "failure": failure, **figures}
        chosen.json.write_text(json.dumps(told, indent=1) + "\n")
    if failure is not None:
        say(f"FAILED: {failure}\nlogs and states of all nodes: {folder}")
        return 1
    if chosen.keep is None:
        shutil.rmtree(folder)
    say("borne")
    return 0


if __name__ == "__main__":
    sys.exit(main())
