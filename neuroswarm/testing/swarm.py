"""A swarm of whole nodes in one process, on the in-memory network, with tiny models.

Knows how to start, kill, restart and watch nodes. What a test does to the network between them
is scripted on `Swarm.network`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.replica import Tamper
from neuroswarm.node.workload import Workload
from neuroswarm.service import State
from neuroswarm.testing.member import (
    LOOK_S,
    Member,
    MemoryCarriers,
    dht_endpoint,
    heartbeat_endpoint,
)
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

INNER_STEPS = 4
DEADLINE_S = 40.0
"""Longest wait for a condition, generous: a loaded machine is slow, and slow is no failure."""

SETTINGS: dict[str, dict[str, Any]] = {
    "heartbeat": {"interval_s": 0.3},
    "dht": {"enabled": False},
    "rounds": {
        "genesis_wait_s": 0.3,
        "contagion_s": 0.1,
        "collect_deadline_s": 3.0,
        "settle_s": 0.2,
        "min_settle_s": 0.05,
        "ballot_deadline_s": 1.0,
        "confirm_deadline_s": 0.6,
        "patience_s": 0.3,
        "pull_timeout_s": 5.0,
        "pull_stall_s": 1.0,
    },
    "diloco": {"inner_steps": INNER_STEPS, "inner_steps_min": 1, "inner_steps_max": 8},
    "training": {
        "optimizer": "adamw",
        "lr": 1e-2,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "context": 16,
        "batch_size": 4,
        "eval_batches": 1,
    },
    "resources": {"device": "cpu", "max_cpu_threads": 1, "available_memory_mb": 8192},
}
"""What differs from a node's defaults: small models and short waits."""


MIN_GRACE_S = 0.1
GRACE_STEPS = 2
"""As in a real swarm, who is in the middle of a step when the others publish is in time."""


def _grace_s(step_s: float) -> float:
    return max(MIN_GRACE_S, GRACE_STEPS * step_s)


class Swarm:
    """Nodes on one in-memory network; everything is stopped on leaving it.

    Keys, texts and faults follow from the seed; the order of events is that of real time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        step_s: float = 0.0,
        width: int = 64,
        is_model_built_in: bool = False,
        make_workload: Callable[[str, int], Workload] | None = None,
        **settings: dict[str, Any],
    ) -> None:
        """Start empty.

        Args:
            folder: For the nodes' state folders.
            seed: Of keys and of chance in the network.
            step_s: Least time of an inner step, seconds: longer rounds at no cost.
            width: Of the model; a contribution has about 24 bytes for each.
            is_model_built_in: Train the model of the settings instead of the tiny one.
            make_workload: Makes what each member trains instead, from its name and model seed.
            settings: Sections to change, as `rounds={"settle_s": 0.1}`.
        """
        self.network = MemoryNetwork(seed)
        self.members: dict[str, Member] = {}
        """The newest life of every node, by name."""
        self.protocols: dict[str, int] = {}
        """Protocol versions that members announce from their next start on, by name; also ones
        that no settings allow, as nodes of other versions of this program would."""
        self._folder = folder
        self._seed = seed
        self._step_s = step_s
        self._width = width
        self._is_model_built_in = is_model_built_in
        usual = {**SETTINGS, "rounds": {**SETTINGS["rounds"], "min_grace_s": _grace_s(step_s)}}
        self._make_workload = make_workload or self._make_tiny
        self._settings = {
            name: {**usual.get(name, {}), **settings.get(name, {})}
            for name in {**usual, **settings}
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.gather(*(member.core.stop() for member in self.members.values()))

    @property
    def running(self) -> list[Member]:
        """Members that are up, in the order of their making."""
        return [m for m in self.members.values() if m.core.state is State.RUNNING]

    # -- life of members -------------------------------------------------------------

    async def found(self, first: str, *others: str) -> list[Member]:
        """Start a swarm whose members all know each other and the genesis before they train.

        Args:
            first: Makes the genesis.
            others: Download it.
        """
        made = [*await self.start(first, trains=False), *await self.start(*others, trains=False)]
        await self.train_together(made)
        return made

    async def train_together(self, members: Collection[Member]) -> None:
        """Let members train once all of them know each other."""
        everyone = {member.node_id for member in members}

        def all_know_all() -> bool:
            return all(
                everyone <= {member.node_id, *(p.node_id for p in member.parts.rounds.crowd.live())}
                for member in members
            )

        await self.until(all_know_all, what="everyone to know everyone")
        for member in members:
            member.begin_training()

    async def start(
        self,
        *names: str,
        model_seed: int = 0,
        trains: bool = True,
        tamper: Tamper | None = None,
        clock: Clock | None = None,
        knows: Collection[str] | None = None,
        seeds: Collection[str] = (),
        data: Path | None = None,
    ) -> list[Member]:
        """Start new nodes that know of all earlier ones, and let them train.

        Args:
            names: What the test calls them.
            model_seed: Of the initial parameters, should one of them make the genesis.
            trains: Whether they take part in rounds at once.
            tamper: Makes them hostile.
            clock: What they take for the time; None for the real one.
            knows: Members whose heartbeat endpoints they are told; None for all earlier ones.
            seeds: Members whose endpoints in the DHT they are told.
            data: What they train on, with ids below 32 unless the model is built in; None for
                `tiny_text`.
        """
        made = [
            self._make(
                name, model_seed=model_seed, is_trainer=trains, tamper=tamper, clock=clock,
                knows=knows, seeds=seeds, data=data,
            )
            for name in names
        ]  # fmt: skip
        await asyncio.gather(*(self._start(member) for member in made))
        return made

    def cut_power(self, *members: Member) -> None:
        """Stop members as a power cut does: nothing more is sent, received or written.

        They are to be stopped by `bury` or `restart`, which let go of threads and files.
        """
        for member in members:
            self.network.kill(member.node_id)
            member.folder.rename(_grave(member))

    async def bury(self, *members: Member) -> None:
        """Cut the members' power and release what they hold of this process."""
        self.cut_power(*(m for m in members if not _grave(m).exists()))
        await asyncio.gather(*(member.core.stop() for member in members))
        for member in members:
            _grave(member).rename(member.folder)

    async def restart(self, *members: Member, trains: bool = True) -> list[Member]:
        """Start members again from their state folders; those that run are killed before."""
        await self.bury(*(m for m in members if m.core.state is not State.STOPPED))
        again = [
            self._make(
                m.name,
                model_seed=m.model_seed,
                is_trainer=trains,
                tamper=m.tamper,
                clock=m.clock,
                data=m.data,
            )
            for m in members
        ]
        await asyncio.gather(*(self._start(member) for member in again))
        return again

    def _make(
        self,
        name: str,
        *,
        model_seed: int,
        is_trainer: bool,
        tamper: Tamper | None,
        clock: Clock | None,
        knows: Collection[str] | None = None,
        seeds: Collection[str] = (),
        data: Path | None = None,
    ) -> Member:
        known = self.members.get(name)
        host = known.host if known else f"10.0.1.{len(self.members) + 1}"
        folder = self._folder / name
        key = _load_or_write_key(folder, f"{self._seed}/{name}")
        config = {
            **self._settings,
            "network": {
                **self._settings.get("network", {}),
                "host": "127.0.0.1",
                "port": 0,
                "announce_host": host,
            },
            "dht": {
                **self._settings["dht"],
                "seeds": tuple(str(dht_endpoint(self.members[other].host)) for other in seeds),
            },
            "state_dir": folder,
        }
        told = self.members.keys() if knows is None else knows
        others = [self.members[other].host for other in told if other != name]
        surroundings = Surroundings(
            make_carriers=lambda key, _token, _config: MemoryCarriers(
                self.network, key.node_id, host
            ),
            hints=tuple(map(heartbeat_endpoint, others)),
            tamper=tamper,
            clock=clock or SystemClock(),
        )
        workload = self._make_workload(name, model_seed)
        if data is not None:
            workload = replace(workload, data=data)
        settings = _announce(SwarmNodeConfig(**config), self.protocols.get(name))
        core = NodeCore(settings, SwarmToken(bytes(32)), workload, surroundings)
        member = Member(
            name, host, folder, core, key, model_seed, is_trainer, tamper, self._step_s,
            surroundings.clock, data,
        )  # fmt: skip
        self.members[name] = member
        return member

    def _make_tiny(self, _name: str, model_seed: int) -> Workload:
        tiny = None if self._is_model_built_in else TinyModel(model_seed, width=self._width)
        return Workload(tiny, tiny_text())

    async def _start(self, member: Member) -> None:
        await member.core.start()
        member.first_round = member.round
        if member.is_trainer:
            member.begin_training()

    # -- watching --------------------------------------------------------------------

    async def until(
        self, condition: Callable[[], bool], *, within_s: float = DEADLINE_S, what: str = ""
    ) -> None:
        """Wait for a condition.

        Raises:
            TimeoutError: it does not hold after `within_s`; says where everyone stands.
        """
        deadline = time.monotonic() + within_s
        while not condition():
            self._check_alive()
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not within {within_s} s: {what} {self.running}")
            await asyncio.sleep(LOOK_S)

    async def until_round(self, round_: int, members: Collection[Member] = ()) -> None:
        """Wait until members, all that run if none are given, hold a state of that round."""
        wanted = members or self.running
        await self.until(
            lambda: all(member.round >= round_ for member in wanted), what=f"round {round_}"
        )

    async def more_rounds(self, count: int, members: Collection[Member] = ()) -> None:
        """Wait until all members are that many rounds further than the foremost of them is."""
        newest = max(member.round for member in members or self.running)
        await self.until_round(newest + count, members)

    async def until_level(self, members: Collection[Member] = ()) -> int:
        """Wait until members hold the same state; returns its round."""
        wanted = list(members or self.running)
        await self.until(lambda: len({m.digest for m in wanted}) == 1, what="equal digests")
        return wanted[0].round

    async def digests(self, members: Collection[Member] = ()) -> dict[int, set[str]]:
        """Digests of every round that all members know of; one each if they agree."""
        logs = [await member.digests() for member in members or self.running]
        shared = sorted(set.intersection(*(set(log) for log in logs)))
        return {round_: {log[round_] for log in logs} for round_ in shared}

    def _check_alive(self) -> None:
        """A node that failed is the reason why nothing comes of waiting: raise its error."""
        failed = [m for m in self.members.values() if m.core.state is State.FAILED]
        if failed:
            raise AssertionError(f"{failed[0].name} failed")


def negated(factor: float = 10.0) -> Tamper:
    """A hostile node's lie: its pseudo-gradient, negated and enlarged."""
    return lambda outer, local: [
        theta + factor * (theta - x) for theta, x in zip(outer, local, strict=True)
    ]


def _grave(member: Member) -> Path:
    return member.folder.with_name(f"{member.folder.name}.off")


def _announce(config: SwarmNodeConfig, protocol: int | None) -> SwarmNodeConfig:
    if protocol is None:
        return config
    network = config.network.model_copy(update={"protocol_version": protocol})
    return config.model_copy(update={"network": network})


def _load_or_write_key(folder: Path, text: str) -> NodeKey:
    """A key that follows from a text, where the node will look for its own."""
    path = folder / "identity.key"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(text.encode()).digest())
        path.touch(mode=0o600)
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return NodeKey.load_or_create(path)
