"""Attacks on the agreement, on whole nodes that gossip over a network in memory.

Here it counts that honest peers stay equal to the last bit whatever each of them was told.
Refuses to know vectors: what an attack on a rule does is measured in `training_run`.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from neuroswarm.errors import PeerError
from neuroswarm.gossip.outbox import Parcel
from neuroswarm.gossip.push import decode_push, encode_push
from neuroswarm.node.replica import Tamper
from neuroswarm.testing.faults import DATAGRAM, Passage
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm, negated
from neuroswarm.wire.messages import Contribution, decode_contribution
from neuroswarm.wire.signed import Kind, Signed, sign, verify

logger = logging.getLogger(__name__)

EQUIVOCATION = "equivocation"
SELECTIVE = "selective delivery"
GOSSIP_ATTACKS = (EQUIVOCATION, SELECTIVE)

PUSH = "Gossip/Push"
LAST_ROUNDS = 8
STEP_S = 0.02
"""Least time of an inner step, seconds, so that nodes keep step where cores are scarce."""

DEADLINE_S = 600.0
"""Longest run, generous: all cores may be at work on other runs."""

TRAINING: dict[str, Any] = {"eval_batches": 8, "batch_size": 8, "lr": 2e-3}
DILOCO: dict[str, Any] = {"inner_steps": 30, "inner_steps_min": 1, "inner_steps_max": 60}
ROUNDS: dict[str, Any] = {"min_grace_s": 0.5}
"""What differs from the settings of a swarm for tests."""


@dataclass(frozen=True, slots=True)
class GossipRecord:
    """What was measured in a run of whole nodes."""

    loss: float
    """Held-out loss of the outer parameters, mean of the last rounds, nats per token."""
    rounds: int
    """Rounds whose digests were compared."""
    rounds_equal: int
    """Those that took all honest peers to the same digest at once. In the end all are equal in
    any case: a run waits for that."""
    repairs: int
    """Changes of lineage of honest peers: how often one had to give way to the others."""
    inner_steps: float
    """That honest peers took, on average."""
    is_banned: bool
    """Whether every honest peer has banned every attacker."""
    hostile_agreed: int
    """Contributions of attackers that became part of an agreed set."""
    faults_fired: int
    """Messages that the attackers kept from someone, or told twice."""


def run_gossip(
    attack: str | None, *, seed: int, num_honest: int, num_hostile: int, rounds: int
) -> GossipRecord:
    """Run a swarm of whole nodes, and see what the attackers achieve.

    Args:
        attack: One of `GOSSIP_ATTACKS`; None for a run without attackers.
        seed: Of keys, the network's chance and the model.
        num_honest: Honest peers.
        num_hostile: Attackers; 0 if there is no attack.
        rounds: Rounds that the honest peers finish.
    """
    with tempfile.TemporaryDirectory(prefix="neuroswarm-bench-") as folder:
        return asyncio.run(_run(Path(folder), attack, seed, (num_honest, num_hostile), rounds))


async def _run(
    folder: Path, attack: str | None, seed: int, sizes: tuple[int, int], rounds: int
) -> GossipRecord:
    names = [f"honest{k}" for k in range(sizes[0])]
    liars = [f"hostile{k}" for k in range(sizes[1])]
    tamper: Tamper | None = negated(1.0) if attack == SELECTIVE else None
    async with Swarm(
        folder, seed=seed, step_s=STEP_S, training=TRAINING, diloco=DILOCO, rounds=ROUNDS
    ) as swarm:
        honest = list(await swarm.start(names[0], trains=False, model_seed=seed))
        honest += await swarm.start(*names[1:], trains=False)
        hostile = list(await swarm.start(*liars, trains=False, tamper=tamper)) if liars else []
        scripts = [_make_script(attack, swarm, liar, honest) for liar in hostile]
        await swarm.train_together([*honest, *hostile])

        def is_over() -> bool:
            return all(member.round >= rounds for member in honest)

        await asyncio.gather(
            swarm.until(is_over, within_s=DEADLINE_S, what=f"round {rounds}"),
            *(script.play(is_over) for script in scripts),
        )
        await swarm.until(
            lambda: len({member.digest for member in honest}) == 1,
            within_s=DEADLINE_S,
            what="equal digests",
        )
        return await _measure(honest, hostile, sum(s.fired for s in scripts))


async def _measure(honest: Sequence[Member], hostile: Sequence[Member], fired: int) -> GossipRecord:
    digests = [_first_digests(await member.events()) for member in honest]
    shared = set.intersection(*(set(found) for found in digests))
    commits = [e for e in await honest[0].events() if e["event"] == "commit"]
    losses = [e["held_out_loss"] for e in commits][-LAST_ROUNDS:]
    liars = {member.node_id.hex() for member in hostile}
    banned = [m.parts.rounds.crowd.is_banned(x.node_id) for m in honest for x in hostile]
    return GossipRecord(
        loss=sum(losses) / len(losses),
        rounds=len(shared),
        rounds_equal=sum(len({found[r] for found in digests}) == 1 for r in shared),
        repairs=sum(m.statistics.repairs for m in honest),
        inner_steps=sum(m.parts.trainer.total.steps for m in honest) / len(honest),
        is_banned=bool(banned) and all(banned),
        hostile_agreed=sum(signer in liars for e in commits for signer in e.get("signers", ())),
        faults_fired=fired,
    )


def _first_digests(events: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """By round: the digest that a node went to by itself, whatever it was repaired to later."""
    found: dict[int, str] = {}
    for event in events:
        if event["event"] == "commit" and not event["is_repair"]:
            found.setdefault(event["round"], event["digest"])
    return found


def _make_script(
    attack: str | None, swarm: Swarm, liar: Member, honest: Sequence[Member]
) -> Equivocator | Selective:
    others = honest[len(honest) // 2 :]
    if attack == EQUIVOCATION:
        return Equivocator(swarm, liar, others)
    if attack == SELECTIVE:
        return Selective(swarm, liar, others)
    raise ValueError(f"attack: {attack!r} (one of {', '.join(GOSSIP_ATTACKS)})")


class Selective:
    """Never tells half of the peers anything but heartbeats, and gives them no payload."""

    def __init__(self, swarm: Swarm, liar: Member, others: Sequence[Member]) -> None:
        self._faults = [
            swarm.network.drop(
                liar.node_id, other.node_id, when=lambda passage: passage.method != DATAGRAM
            )
            for other in others
        ]

    @property
    def fired(self) -> int:
        """Messages kept from someone."""
        return sum(fault.fired for fault in self._faults)

    async def play(self, _is_over: Callable[[], bool]) -> None:
        """Nothing more to do."""


@dataclass(eq=False)
class Equivocator:
    """Signs two contributions in every round: half of the peers are told one, half the other."""

    swarm: Swarm
    liar: Member
    others: Sequence[Member]
    fired: int = 0
    """Second stories told."""
    _told: set[bytes] = field(default_factory=set)
    """Pushes that carry a second story."""
    _first: dict[int, Signed] = field(default_factory=dict)
    """The first story of each round, as it was kept from the others."""

    def __post_init__(self) -> None:
        for other in self.others:
            self.swarm.network.drop(
                self.liar.node_id, other.node_id, PUSH, when=self._is_first_story
            )

    async def play(self, is_over: Callable[[], bool]) -> None:
        """Tell second stories until the run is over."""
        done: set[int] = set()
        while True:
            await self.swarm.until(
                lambda: is_over() or bool(self._first.keys() - done),
                within_s=DEADLINE_S,
                what="a story to contradict",
            )
            if is_over():
                return
            for round_ in sorted(self._first.keys() - done):
                done.add(round_)
                await self._contradict(self._first[round_])

    def _is_first_story(self, passage: Passage) -> bool:
        if passage.data in self._told:
            return False
        for relayed in decode_push(passage.data).messages:
            signed = verify(relayed.message)
            if signed.kind is Kind.CONTRIBUTION and signed.signer == self.liar.node_id:
                self._first[decode_contribution(signed.body).round] = signed
                return True
        return False

    async def _contradict(self, first: Signed) -> None:
        """The same payload under a header with other tokens, for those who were not told."""
        archive = self.liar.parts.rounds.intake.archive
        header: Contribution = decode_contribution(first.body)
        story = replace(header, tokens=header.tokens + 1)
        second = sign(Kind.CONTRIBUTION, story.encode(), self.liar.key)
        entry = archive.get(first.id)
        archive.add_header(second, story)
        if entry is not None and isinstance(entry.payload, bytes):
            archive.add_payload(second.id, entry.payload)
        push = encode_push([Parcel(second, 3)])
        self._told.add(push)
        known = {peer.node_id: peer.address for peer in self.liar.parts.rounds.crowd.live()}
        rpc = self.liar.parts.carriers.rpc
        for other in self.others:
            if other.node_id not in known:
                continue
            try:
                await rpc.call(known[other.node_id], PUSH, push, timeout_s=5)
            except PeerError as error:  # such as a ban
                logger.debug("%s does not listen: %s", other.name, error)
            else:
                self.fired += 1
