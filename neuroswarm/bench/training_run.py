"""One run of DiLoCo with all its peers in one process: real training, books, codec and rules.

There is no network in it: agreement is exact, so every honest peer holds the same outer state,
and one copy of it stands for all. Refuses to know which runs are compared.

Legend: P honest peers, N flattened parameters of the whole model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from neuroswarm.bench.adversary import Adversary
from neuroswarm.bench.task import Task, Text, make_trainer
from neuroswarm.codecs.registry import codec_of
from neuroswarm.diloco.ledger import Ledger
from neuroswarm.diloco.outer import AgreedContribution, RoundOutcome, advance
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import plan_inner_steps
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import NonFiniteLoss
from neuroswarm.training.trainer import Trainer
from neuroswarm.values import NodeId


@dataclass(slots=True)
class Record:
    """What was measured in a run."""

    losses: list[float] = field(default_factory=list)
    """Held-out losses of the outer parameters after the last rounds, nats per byte."""
    num_params: int = 0
    honest: int = 0
    """Contributions of honest peers."""
    honest_rejected: int = 0
    """Those that the screening left out."""
    hostile: int = 0
    hostile_rejected: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Rejections of honest contributions by reason."""
    is_broken: bool = False
    """Whether a peer could not go on: loss or parameters were not finite."""

    @property
    def loss(self) -> float:
        """Mean of the last rounds; infinite if it is no number or the run broke."""
        if self.is_broken or not self.losses or not all(map(math.isfinite, self.losses)):
            return math.inf
        return math.fsum(self.losses) / len(self.losses)


class Peer:
    """A peer of a run: a trainer and its books."""

    def __init__(self, node_id: NodeId, trainer: Trainer, rules: Rules) -> None:
        self.node_id = node_id
        self.trainer = trainer
        self._ledger = Ledger(
            trainer.fragments.sizes,
            codec_of(rules),
            contribution_momentum=rules.contribution_momentum,
        )

    def contribute(self, state: OuterState, inner_steps: int) -> AgreedContribution:
        """Train for a round and publish.

        Raises:
            NonFiniteLoss: 50 steps in a row had no finite loss.
            ValueError: The parameters are not finite.
        """
        self.trainer.follow(plan_inner_steps(state.rules, state.round))
        for _ in range(inner_steps):
            self.trainer.step()
        progress = self.trainer.progress
        self.trainer.mark_published(self.trainer.progress)
        deltas, payloads = self._ledger.prepare(state.params, self.trainer.local())
        name = contribution_id(self.node_id, state.round)
        self._ledger.remember(Publication(name, state.round, deltas, payloads))
        return AgreedContribution(self.node_id, name, progress.steps, progress.tokens, payloads)

    def follow(self, old: OuterState, new: OuterState) -> None:
        """Move to the next outer state."""
        self.trainer.shift(self._ledger.move(old, new, self.node_id))


@dataclass(frozen=True, slots=True)
class Crew:
    """Who takes part: honest peers, peers that train and lie, and a mind that lies for others."""

    honest: Sequence[Peer]
    misled: Sequence[Peer] = ()
    """Hostile peers that contribute what they really trained, on wrong labels."""
    adversary: Adversary | None = None
    """Speaks for the other hostile peers."""

    @property
    def trained(self) -> Sequence[Peer]:
        """Everyone with a model."""
        return (*self.honest, *self.misled)


def make_peers(
    task: Task, text: Text, rules: Rules, seed: int, parts: Sequence[int], *, flips: bool = False
) -> list[Peer]:
    """One peer for each part of the text, with equal initial parameters."""
    return [
        Peer(peer_id(part), make_trainer(task, text, part, seed, flips=flips), rules)
        for part in parts
    ]


def run_training(task: Task, rules: Rules, crew: Crew) -> Record:
    """All rounds of a run; the peers are used up.

    A run that breaks ends there.
    """
    first = crew.honest[0].trainer
    named = zip(first.fragments.names, first.local(), strict=True)
    state = genesis(task.pace(rules), first.fragments.architecture, named)
    record = Record(num_params=state.num_params)
    for round_ in range(task.rounds):
        try:
            state = _play_round(task, state, crew, record)
        except (NonFiniteLoss, ValueError):
            record.is_broken = True
            return record
        if round_ >= task.rounds - task.last_rounds:
            record.losses.append(first.evaluate(state.params, task.eval_batches))
    return record


def _play_round(task: Task, state: OuterState, crew: Crew, record: Record) -> OuterState:
    honest = [peer.contribute(state, task.inner_steps) for peer in crew.honest]
    hostile = [peer.contribute(state, task.inner_steps) for peer in crew.misled]
    if crew.adversary is not None:
        hostile += crew.adversary.contribute(state, honest)
    outcome = advance(state, [*hostile, *honest])
    for peer in crew.trained:
        peer.follow(state, outcome.state)
    _count(record, outcome, honest, hostile)
    return outcome.state


def _count(
    record: Record,
    outcome: RoundOutcome,
    honest: Sequence[AgreedContribution],
    hostile: Sequence[AgreedContribution],
) -> None:
    record.honest += len(honest)
    record.hostile += len(hostile)
    record.hostile_rejected += sum(c.id in outcome.rejected for c in hostile)
    for contribution in honest:
        reason = outcome.rejected.get(contribution.id)
        if reason is not None:
            record.honest_rejected += 1
            record.reasons[reason] = record.reasons.get(reason, 0) + 1


def peer_id(part: int) -> NodeId:
    """The identity of the peer with that part of the text: hostile ones, the last, come first.

    Ties are broken in this order, so the order is the attackers' best.
    """
    return NodeId(bytes([255 - part]) * 20)


def contribution_id(node_id: NodeId, round_: int) -> bytes:
    """A contribution's id in a run, 32 bytes."""
    return hashlib.sha256(b"bench" + node_id + round_.to_bytes(8, "little")).digest()
