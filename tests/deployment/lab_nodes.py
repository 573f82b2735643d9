"""What the nodes in a lab's containers say: status, rounds, digests, how they ended.

Refuses to start or stop any.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab_engines import Engine, LabFailed

from neuroswarm.testing.waiting import wait_until

WITHIN_S = 420.0
"""For anything that is waited for: several engines on one busy machine."""

SWARM_LABEL = "com.docker.swarm.service.name"
COMPOSE_LABEL = "com.docker.compose.service"


@dataclass(frozen=True)
class Round:
    """An outer state as one node has it."""

    digest: str
    signers: frozenset[str]
    """Nodes whose contributions it holds, by their ids."""


@dataclass(frozen=True)
class Member:
    """A node in a container."""

    engine: Engine
    container: str
    events: str = "/var/lib/neuroswarm/node/events.jsonl"
    """What its rounds did."""

    def status(self) -> dict[str, Any]:
        """Its `/status`; LabFailed while it does not answer."""
        text = self.engine.docker("exec", self.container, "neuroswarm", "status", "--json")
        return dict(json.loads(text))

    def ask(self, page: str) -> Any:
        """One of its pages, as JSON values."""
        code = (
            "import sys, urllib.request as r; "
            "sys.stdout.write(r.urlopen(sys.argv[1], timeout=9).read().decode())"
        )
        url = f"http://127.0.0.1:7101{page}"
        return json.loads(self.engine.docker("exec", self.container, "python", "-c", code, url))

    def rounds(self) -> dict[int, Round]:
        """The outer states that it has been in, from its event log."""
        found = {}
        for line in self.engine.docker("exec", self.container, "cat", self.events).splitlines():
            event = json.loads(line) if line.endswith("}") else {}
            if event.get("event") == "commit":
                found[event["round"]] = Round(event["digest"], frozenset(event["signers"]))
        return found


def find(engine: Engine, service: str, label: str = SWARM_LABEL) -> list[Member]:
    """The running containers of a service on an engine."""
    wanted = ("--filter", f"label={label}={service}", "--filter", "status=running")
    names = engine.docker("ps", "--quiet", *wanted).split()
    return [Member(engine, name) for name in names]


def find_ready(engines: Iterable[Engine], service: str) -> list[Member]:
    """One node on each engine, that holds an outer state; waits until all do."""
    found: list[Member] = []

    def are_ready() -> bool:
        found.clear()
        for engine in engines:
            members = find(engine, service)
            if len(members) != 1 or not is_healthy(members[0]):
                return False
            found.extend(members)
        return True

    wait_until(are_ready, within_s=WITHIN_S, what=f"a ready node of {service} on every engine")
    return found


def with_folders(members: Sequence[Member]) -> list[Member]:
    """Nodes that share a volume, each with one of the folders in it, by chance its own."""
    folders = ["node", *(f"node-{number}" for number in range(2, len(members) + 1))]
    root = "/var/lib/neuroswarm/.local/state/neuroswarm/default"
    return [
        replace(member, events=f"{root}/{folder}/events.jsonl")
        for member, folder in zip(members, folders, strict=True)
    ]


def is_healthy(member: Member, *flags: str) -> bool:
    """Whether `neuroswarm health` in its container says so; without flags: whether it is ready."""
    asked = ("neuroswarm", "health", *filter(None, flags))
    try:
        member.engine.docker("exec", member.container, *asked)
    except LabFailed:
        return False
    return True


def wait_for_agreement(members: Collection[Member], *, after: int = -1) -> tuple[int, str]:
    """Wait for a round to which all of these contributed, and that all hold with one digest.

    Args:
        members: Who must have contributed and agreed.
        after: Earlier rounds do not count.

    Returns:
        The newest such round, and its digest.
    """
    ids = {member: member.status()["node_id"] for member in members}
    seen: dict[int, str] = {}

    def do_agree() -> bool:
        books = [member.rounds() for member in members]
        for number in set.intersection(*(set(book) for book in books)):
            states = [book[number] for book in books]
            is_one = len({state.digest for state in states}) == 1
            if number > after and is_one and states[0].signers >= set(ids.values()):
                seen[number] = states[0].digest
        return bool(seen)

    what = f"a round after {after} of all {len(members)} nodes: {sorted(ids.values())}"
    wait_until(do_agree, within_s=WITHIN_S, what=what)
    newest = max(seen)
    return newest, seen[newest]


def read_ends(engine: Engine, since: str) -> list[Mapping[str, str]]:
    """How the containers of an engine ended since a time: name and exit code of each."""
    return [event["Actor"]["Attributes"] for event in _read_events(engine, since, "die")]


def read_stop_s(engine: Engine, since: str) -> float:
    """Seconds from the first signal that the engine sent to the last end of a container."""
    asked, ended = (_read_events(engine, since, action) for action in ("kill", "die"))
    return float(ended[-1]["timeNano"] - asked[0]["timeNano"]) / 1e9


def _read_events(engine: Engine, since: str, action: str) -> list[dict[str, Any]]:
    span = ("--since", since, "--until", engine.docker("info", "--format", "{{.SystemTime}}"))
    form = ("--filter", f"event={action}", "--format", "{{json .}}")
    return [json.loads(line) for line in engine.docker("events", *span, *form).splitlines()]
