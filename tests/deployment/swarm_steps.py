"""The acts of the test on real engines: host network, overlay network, compose on one machine.

Each prints what it does and what it sees, as a person would type it.
"""

from __future__ import annotations

import ipaddress
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab_engines import Engine, Lab, LabFailed, call, is_in_swarm, join
from lab_nodes import (
    COMPOSE_LABEL,
    WITHIN_S,
    Member,
    find,
    find_ready,
    is_healthy,
    read_ends,
    read_stop_s,
    wait_for_agreement,
    with_folders,
)

from neuroswarm.identity.token import SwarmToken
from neuroswarm.testing.waiting import wait_until

STACK = "neuroswarm"
NODE = f"{STACK}_node"
VOLUME = f"{STACK}_node-state"
SECRET = "neuroswarm_token"
BEGAN = time.monotonic()


@dataclass(frozen=True)
class Act:
    """The stage: engines by number, the first one a manager, and the files to deploy."""

    engines: dict[int, Engine]
    lab: Lab
    files: Path
    first: str
    second: str
    is_own: bool
    """Whether engines may be killed."""

    @property
    def manager(self) -> Engine:
        """The engine that commands are given to."""
        return self.engines[1]

    def some(self, *numbers: int) -> list[Engine]:
        """Engines of these numbers."""
        return [self.engines[number] for number in numbers]


def tell(text: str) -> None:
    """What the test does or found, with the seconds since it began."""
    print(f"# {time.monotonic() - BEGAN:4.0f} s: {text}", flush=True)  # noqa: T201


def show(engine: Engine, *command: str, folder: Path | None = None, **environment: str) -> str:
    """Run the docker client as a person would, and print command and output."""
    variables = "".join(f"{name}={value} " for name, value in environment.items())
    print(f"machine{engine.number}$ {variables}{shlex.join(['docker', *command])}", flush=True)  # noqa: T201
    said = engine.docker(*command, folder=folder, **environment)
    if said:
        print(said, flush=True)  # noqa: T201
    return said


def deploy(act: Act, file: str, image: str) -> None:
    """Deploy a stack file as it is; only the address is said."""
    where = {"TRACKER_HOST": act.manager.address} if file == "stack.yml" else {}
    command = ("stack", "deploy", "--resolve-image", "never", "-c", file, STACK)
    show(act.manager, *command, folder=act.files, IMAGE=image, **where)


def host_act(act: Act) -> None:
    """stack.yml: three nodes, one dies, one joins, an update, one is drained, all leave."""
    tell("stack.yml: the hosts' own network")
    make_secret(act.manager)
    label = "neuroswarm.tracker=true"
    show(act.manager, "node", "update", "--label-add", label, act.manager.swarm_id)
    deploy(act, "stack.yml", act.first)
    members = find_ready(act.some(1, 2, 3), NODE)
    agree(members)
    show(act.manager, "service", "ls")
    members = lose_one(act, members)
    members = gain_one(act, members)
    members = update(act, members)
    drain(act, members)
    leave(act)


def lose_one(act: Act, members: list[Member]) -> list[Member]:
    """A machine loses its power; the others train on."""
    if not act.is_own:
        tell("no engine is killed: they are not this test's own")
        return members
    last = max(number for member in members for number in member.rounds())
    act.lab.kill(2)
    tell("machine2 is killed with everything on it (-9)")
    left = [member for member in members if member.engine.number != 2]
    agree(left, after=last + 1)
    return left


def gain_one(act: Act, members: list[Member]) -> list[Member]:
    """A machine joins the Docker Swarm; nothing else is done for it."""
    newcomer = act.engines[4]
    last = max(members[0].rounds())
    if act.is_own:
        join(act.manager, newcomer)
        tell("machine4 has joined the Docker Swarm")
    joined = [*members, *find_ready([newcomer], NODE)]
    agree(joined, after=last)
    show(act.manager, "node", "ls", "--format", "{{.Hostname}} {{.Status}} {{.Availability}}")
    return joined


def update(act: Act, members: list[Member]) -> list[Member]:
    """A rolling update; identity and training go on."""
    engines = [member.engine for member in members]
    before = {member.engine.number: member.status() for member in members}
    old = {member.container for member in members}
    deploy(act, "stack.yml", act.second)

    def is_over() -> bool:
        state = act.manager.docker(
            "service", "inspect", "--format", "{{.UpdateStatus.State}}", NODE
        )
        assert "pause" not in state, show(act.manager, "service", "ps", "--no-trunc", NODE)
        return state == "completed"

    wait_until(is_over, within_s=2 * WITHIN_S, what="the rolling update")
    renewed = find_ready(engines, NODE)
    assert not old & {member.container for member in renewed}, "every container is a new one"
    for member in renewed:
        was, is_ = before[member.engine.number], member.status()
        assert is_["node_id"] == was["node_id"], "the identity outlives the update"
        assert is_["round"] >= was["round"], (was["round"], is_["round"])
        tell(
            f"machine{member.engine.number}: node {is_['node_id'][:8]} was at round "
            f"{was['round']} before the update, is at {is_['round']}"
        )
    agree(renewed, after=max(status["round"] for status in before.values()))
    show(act.manager, "service", "ls")
    return renewed


def drain(act: Act, members: list[Member]) -> None:
    """A machine is taken out of service; the others hear that its node leaves."""
    leaver, watcher = members[-1], members[0]
    node_id = leaver.status()["node_id"]
    since = now(leaver.engine)
    swarm_id = leaver.engine.swarm_id
    show(act.manager, "node", "update", "--availability", "drain", swarm_id)

    def has_said_goodbye() -> bool:
        seen = {peer["node_id"]: peer for peer in watcher.ask("/peers")}
        return node_id in seen and not seen[node_id]["is_alive"]

    wait_until(has_said_goodbye, within_s=WITHIN_S, what="that the leaving node is not waited for")
    seen = {peer["node_id"]: peer for peer in watcher.ask("/peers")}
    silent_s = float(seen[node_id]["last_seen_s"])
    tell(f"machine{watcher.engine.number} knows that node {node_id[:8]} left, {silent_s} s ago")
    require_clean_ends([leaver.engine], since)
    show(act.manager, "node", "update", "--availability", "active", swarm_id)
    find_ready([leaver.engine], NODE)


def leave(act: Act) -> None:
    """The stack is removed; every container ends by itself with 0. Its state goes too."""
    engines = [engine for engine in act.engines.values() if engine.answers()]
    engines = [engine for engine in engines if find(engine, NODE)]
    began = now(act.manager)
    show(act.manager, "stack", "rm", STACK)
    wait_until(
        lambda: not any(engine.docker("ps", "--all", "--quiet") for engine in engines),
        within_s=WITHIN_S,
        what="the end of all containers",
    )
    require_clean_ends(engines, began)
    for engine in engines:
        show(engine, "volume", "rm", VOLUME)


def require_clean_ends(engines: Sequence[Engine], since: str) -> None:
    """Wait until each engine has seen a container end since then; all of them ended with 0."""
    wait_until(
        lambda: all(read_ends(engine, since) for engine in engines),
        within_s=WITHIN_S,
        what="the end of a container on " + ", ".join(f"machine{e.number}" for e in engines),
    )
    for engine in engines:
        for end in read_ends(engine, since):
            name = end["name"].partition(".")[0]
            tell(f"machine{engine.number}: {name} ended with {end['exitCode']}")
            assert end["exitCode"] == "0", end


def agree(members: list[Member], *, after: int = -1) -> None:
    """Wait until these train together and hold the same state, and say which."""
    number, digest = wait_for_agreement(members, after=after)
    for member in members:
        status = member.status()
        mine = member.rounds()[number].digest
        tell(
            f"machine{member.engine.number}: node {status['node_id'][:8]}, round {number} digest "
            f"{mine[:16]}, now at round {status['round']}, {len(status['voters'])} voters"
        )
    tell(f"{len(members)} nodes contributed to round {number} and hold {digest[:16]}")


def overlay_act(act: Act) -> None:
    """stack-overlay.yml: the nodes find each other by name, agree, and leave."""
    tell("stack-overlay.yml: an overlay network")
    make_secret(act.manager)
    engines = [e for e in act.engines.values() if e.answers() and is_in_swarm(e)]
    deploy(act, "stack-overlay.yml", act.first)
    members = find_ready(engines, NODE)
    agree(members)
    where = (
        "network",
        "inspect",
        "--format",
        "{{(index .IPAM.Config 0).Subnet}}",
        f"{STACK}_peers",
    )
    shared = ipaddress.ip_network(act.manager.docker(*where))
    for member in members:
        hosts = member.status()["hosts"]
        tell(f"machine{member.engine.number} is told to be at {hosts}, in {shared}")
        assert all(ipaddress.ip_address(host) in shared for host in hosts), "no other can use it"
    leave(act)


def alone_act(act: Act) -> None:
    """A container without a stack: process number 1 ends with 0, loading or trained."""
    tell("docker run: a node as process number 1")
    engine, name = act.manager, "neuroswarm-alone"
    for page in ("--live", ""):
        since = now(engine)
        run = ("run", "--detach", "--name", name, act.first, "node", "--no-lan")
        show(engine, *run)
        member = Member(engine, name)
        what = f"neuroswarm health {page}"
        wait_until(partial(is_healthy, member, page), within_s=WITHIN_S, what=what)
        show(engine, "stop", "-t", "90", name)
        tell(f"{what} was answered; it took {read_stop_s(engine, since):.1f} s to leave")
        require_clean_ends([engine], since)
        show(engine, "rm", name)


def compose_act(act: Act) -> None:
    """compose.yml: four nodes on one machine."""
    tell("compose.yml: four nodes on one machine")
    engine = act.manager
    compose = find_compose(engine)
    environment = engine.reach({"IMAGE": act.first})
    up = (*compose, "up", "--detach", "--no-build", "--scale", "node=4")
    print(f"machine1$ IMAGE={act.first} {shlex.join(up)}", flush=True)  # noqa: T201
    call(*up, environment=environment, folder=act.files)
    since = now(engine)
    found: list[Member] = []

    def are_ready() -> bool:
        found[:] = find(engine, "node", COMPOSE_LABEL)
        return len(found) == 4 and all(map(is_healthy, found))

    wait_until(are_ready, within_s=WITHIN_S, what="four ready nodes")
    number, digest = wait_for_agreement(with_folders(found))
    tell(f"4 nodes contributed to round {number} and hold {digest[:16]}")
    call(*compose, "down", "--volumes", environment=environment, folder=act.files)
    require_clean_ends([engine], since)


def find_compose(engine: Engine) -> tuple[str, ...]:
    """The compose plugin, or Debian's program."""
    try:
        engine.docker("compose", "version")
    except LabFailed:
        return ("docker-compose",)
    return ("docker", "compose")


def make_secret(manager: Engine) -> None:
    """The swarm's token as a secret of the Docker Swarm, unless it is there."""
    if SECRET not in manager.docker("secret", "ls", "--format", "{{.Name}}").split():
        manager.docker("secret", "create", SECRET, "-", text=SwarmToken.new().text)
        tell(f"the swarm's token is the secret {SECRET}")


def now(engine: Engine) -> str:
    """The engine's time, as its event log takes it."""
    return engine.docker("info", "--format", "{{.SystemTime}}")
