"""One swarm on three processors: this one, an emulated Cortex-A72 and an emulated Ivy Bridge.

Run it with `make arch-test ARCH_ARGS="--work FOLDER"`; see docs/emulated.md. The native node
founds, the emulated ones join it by the public command, and all must hold the same bits round
after round.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from arch_judge import compare, rows
from arch_machines import (
    BAD_TORCH,
    Machine,
    Unprepared,
    fetch_bad_torch,
    make_cortex_a72,
    make_ivy_bridge,
    make_native,
)
from arch_swarm import ArchFailed, Node, Swarm, run_once

from neuroswarm.demo.children import Children
from neuroswarm.demo.launch import choose_ports
from neuroswarm.testing.waiting import wait_until

MACHINES = ("cortex-a72", "ivybridge")
SIGILL = "sigill"
LEAVE_S = 300.0
_BEGAN = time.monotonic()


def say(text: str) -> None:
    """One line for people, with the seconds since the start."""
    print(f"{time.monotonic() - _BEGAN:7.1f} s  {text}", flush=True)  # noqa: T201


class Trial:
    """One swarm of the native node and some emulated ones."""

    def __init__(self, swarm: Swarm, machines: Sequence[Machine], *, rounds: int) -> None:
        self._swarm = swarm
        self._machines = machines
        self._rounds = rounds
        self._told: set[str] = set()

    def run(self, within_s: float) -> None:
        """Start all, wait for the rounds, let all leave; ArchFailed if anything is not so."""
        all_ports = choose_ports(1 + len(self._machines))
        native = self._swarm.start(make_native(), all_ports[0])
        self._wait(lambda: native.ready_at is not None, within_s, "the native node is not ready")
        for machine, ports in zip(self._machines, all_ports[1:], strict=True):
            self._swarm.start(machine, ports)
        self._wait(self._agree_long_enough, within_s, f"no {self._rounds} rounds together")
        self._conclude()
        self._swarm.ask_to_leave()
        self._wait(self._swarm.have_left, LEAVE_S, "not all have left", looks=False)
        say("all left with code 0")

    def _wait(
        self, is_done: Callable[[], bool], within_s: float, what: str, *, looks: bool = True
    ) -> None:
        def is_over() -> bool:
            if looks:
                self._swarm.look()
                self._tell()
            return is_done()

        try:
            wait_until(is_over, within_s=within_s, what=what)
        except TimeoutError as error:
            ends = [f"{n.machine.name}:\n{n.last_lines()}" for n in self._swarm.nodes]
            raise ArchFailed("\n".join([str(error), *ends])) from error

    def _agree_long_enough(self) -> bool:
        native, *others = (node.record for node in self._swarm.nodes)
        agreements = [compare(native, other) for other in others]
        for other, agreement in zip(others, agreements, strict=True):
            if agreement.is_broken:
                raise ArchFailed(f"{other.name} differs: {', '.join(agreement.differing)}")
        return all(len(agreement.rounds) >= self._rounds for agreement in agreements)

    def _tell(self) -> None:
        for node in self._swarm.nodes:
            for what, at in (("answers /livez", node.live_at), ("is ready", node.ready_at)):
                if at is not None:
                    took_s = at - node.started_at
                    self._once(f"{node.machine.name} {what} {took_s:.1f} s after its start")
            for event in node.record.committed:
                how = "downloads" if event.is_download else "commits"
                held = f"{event.digest[:16]}, contributions: {len(event.contributions)}"
                self._once(f"{node.machine.name} {how} round {event.round}: {held}")

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            say(text)

    def _conclude(self) -> None:
        records = [node.record for node in self._swarm.nodes]
        native, *others = records
        shared = {other.name: compare(native, other).rounds for other in others}
        for name, rounds in shared.items():
            say(f"native and {name}: {len(rounds)} rounds, each with a contribution of both")
        say("in the agreed set, and the same bits afterwards:")
        for row in rows(records, sorted(set().union(*shared.values()))):
            say(f"  {row}")
        for node in self._swarm.nodes:
            say(f"  {describe(node)}")


def describe(node: Node) -> str:
    """What it says of itself."""
    steps = node.record.committed[-1].total_inner_steps if node.record.committed else 0
    status = node.status()
    return (
        f"{node.machine.name}: node {str(node.record.node_id)[:8]}, {steps} inner steps, "
        f"{len(node.record.published)} contributions, round {status.get('round')}, "
        f"state {str(status.get('digest'))[:16]}"
    )


def try_bad_torch(machine: Machine, work: Path) -> None:
    """The node says in one line, with code 78, that a torch would kill it on this processor."""
    paths = (fetch_bad_torch(work / "cortex-a72", say),)
    say(f"neuroswarm node with torch {BAD_TORCH} on {machine.name}:")
    run_once(machine, paths, say)


def run(work: Path, wanted: Sequence[str], *, rounds: int, minutes: float, niceness: int) -> None:
    """Prepare what is wanted, then do it."""
    made: dict[str, Machine] = {}
    if {"cortex-a72", SIGILL} & set(wanted):
        made["cortex-a72"] = make_cortex_a72(work / "cortex-a72", say)
    if "ivybridge" in wanted:
        made["ivybridge"] = make_ivy_bridge(work / "ivybridge")
    if SIGILL in wanted:
        try_bad_torch(made["cortex-a72"], work)
    machines = [made[name] for name in MACHINES if name in wanted]
    if not machines:
        return
    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    with Children() as children:
        swarm = Swarm(folder, children, niceness=niceness)
        Trial(swarm, machines, rounds=rounds).run(60 * minutes)


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if a node does not start, train or agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for everything (1.8 GB)")
    parser.add_argument(
        "--only", default=f"{SIGILL},{','.join(MACHINES)}", help="these, by commas (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds together (default: 3)")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest wait (default: 60)")
    parser.add_argument("--nice", type=int, default=10, help="niceness of the nodes (default: 10)")
    parser.add_argument("--clean", action="store_true", help="remove the folder, and end")
    chosen = parser.parse_args(arguments)
    wanted = chosen.only.split(",")
    if unknown := set(wanted) - {SIGILL, *MACHINES}:
        parser.error(f"no such parts: {', '.join(sorted(unknown))}")
    work = chosen.work.resolve()
    if chosen.clean:
        shutil.rmtree(work)
        return 0
    try:
        run(work, wanted, rounds=chosen.rounds, minutes=chosen.minutes, niceness=chosen.nice)
    except (ArchFailed, Unprepared) as error:
        say(f"FAILED: {error}")
        return 1
    say("all agree" if set(wanted) & set(MACHINES) else "as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
