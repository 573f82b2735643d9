"""The machines, what runs on each, and what its node says: one table.

Refuses to ask docker or nodes; it is given what they said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroswarm.deployment.labels import CLASS, SKIP, TRACKER
from neuroswarm.deployment.readings import Machine, Task

COLUMNS = (
    "machine",
    "class",
    "arch",
    "address",
    "state",
    "task",
    "image",
    "round",
    "digest",
    "peers",
    "error",
)


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of a node's training, by itself or by another node that hears it."""

    round: int | None
    digest: str
    """First 8 hex digits; empty without a state."""
    num_peers: int | None
    """Peers alive, as it says itself; None if only others tell of it."""


def read_own(report: Mapping[str, Any]) -> Said:
    """Out of a node's `/status`."""
    round_, digest, peers = report.get("round"), report.get("digest"), report.get("live_peers")
    return Said(
        round_ if isinstance(round_, int) else None,
        digest[:8] if isinstance(digest, str) else "",
        peers if isinstance(peers, int) else None,
    )


def read_heard(peers: object) -> dict[str, Said]:
    """Out of a node's `/peers`: what it hears of those alive, by their address."""
    heard = {}
    for peer in peers if isinstance(peers, list) else []:
        if isinstance(peer, Mapping) and peer.get("is_alive") and peer.get("same_swarm"):
            host = str(peer.get("address", "")).rpartition(":")[0].strip("[]")
            heard[host] = Said(read_own(peer).round, read_own(peer).digest, None)
    return heard


def choose_task(machine: Machine, tasks: Sequence[Task], service: str) -> Task | None:
    """The task of a service on a machine that is to run, else its latest attempt."""
    here = [task for task in tasks if task.service == service and _is_on(task, machine)]
    wanted = [task for task in here if task.is_wanted]
    return next(iter(wanted or here), None)


def make_row(
    machine: Machine, tasks: Sequence[Task], service: str, said: Said | None
) -> dict[str, str]:
    """One line of the table, by column."""
    task = choose_task(machine, tasks, service)
    told = said or Said(None, "", None)
    return {
        "machine": machine.hostname,
        "class": machine.labels.get(CLASS, ""),
        "arch": machine.architecture,
        "address": machine.address,
        "state": describe_machine(machine),
        "task": "" if task is None else task.state,
        "image": "" if task is None else task.image,
        "round": _show(told.round),
        "digest": told.digest,
        "peers": _show(told.num_peers),
        "error": "" if task is None else _explain(task, machine, tasks),
    }


def describe_machine(machine: Machine) -> str:
    """Its state, and the labels that change what runs there."""
    marks = [machine.state]
    if machine.labels.get(SKIP) == "true":
        marks.append("skipped")
    if machine.labels.get(TRACKER) == "true":
        marks.append("tracker")
    return ", ".join(marks)


def find_unplaced(tasks: Sequence[Task]) -> list[Task]:
    """Tasks that are to run and have no machine."""
    return [task for task in tasks if task.is_wanted and not task.node]


def _explain(task: Task, machine: Machine, tasks: Sequence[Task]) -> str:
    """Its error, or that of the attempt before it."""
    if task.error:
        return task.error
    earlier = [
        other.error
        for other in tasks
        if other.service == task.service and _is_on(other, machine) and other.error
    ]
    return f"before: {earlier[0]}" if earlier else ""


def _is_on(task: Task, machine: Machine) -> bool:
    return task.node_id == machine.id if task.node_id else task.node == machine.hostname


def _show(number: int | None) -> str:
    return "" if number is None else str(number)
