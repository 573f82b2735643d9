"""The swarm's held-out loss of recent outer states, from what every member says of its own part.

Refuses to know how it is said, and what it was measured on.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from neuroswarm.diloco import applied
from neuroswarm.diloco.state import OuterState
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

KEPT_STATES = 8
"""Newest outer states whose figures are kept."""

MIN_FIGURES = 3
"""Fewest of which one can be left out at each side; fewer are shown only where there never were
more."""


@dataclass(frozen=True, slots=True)
class SwarmLoss:
    """What the swarm measured of one outer state."""

    round: int
    loss: float
    """Nats per token."""
    num_nodes: int
    """Members whose figures are behind it."""
    num_members: int
    """Identities that the state names."""

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Figures:
    round: int
    members: frozenset[NodeId]
    losses: dict[NodeId, float] = field(default_factory=dict)

    def conclude(self) -> SwarmLoss:
        loss = trimmed_mean(list(self.losses.values()))
        return SwarmLoss(self.round, loss, len(self.losses), len(self.members))


def trimmed_mean(losses: Sequence[float]) -> float:
    """The mean without a quarter at each side, rounded up; the plain one of one or two.

    Of three and more, as many liars as are left out at a side cannot move it beyond the least or
    the greatest of the other figures. Of two nobody can tell which is wrong.

    Args:
        losses: Finite, at least one; each has one vote, as tokens are what a node says of itself.

    Source: Yin et al. 2018, arXiv:1803.01498, definition 2, with beta = 1/4.
        Differs: the number left out is rounded up, so that three and more bear a liar.
    """
    left_out = -(-len(losses) // 4) if len(losses) >= MIN_FIGURES else 0
    kept = sorted(losses)[left_out : len(losses) - left_out]
    return math.fsum(kept) / len(kept)


class HeldOutFigures:
    """Figures of the states that this node stood on lately, one of each member of a state.

    Members are those whose contributions were agreed in the state's last rounds: an identity that
    was only made up has no vote. Bounded by `KEPT_STATES` and by the members of a state.

    Args:
        me: This node.
    """

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self._by_name: dict[bytes, _Figures] = {}
        """By the name of the state, oldest first."""
        self.own: tuple[bytes, float] | None = None
        """Name of the newest state that this node evaluated, and its figure: what it tells."""

    def stand_on(self, state: OuterState) -> None:
        """This node moved to a state: figures of rounds beyond it are of another lineage."""
        name, before = name_of(state), self._by_name
        kept = {n: f for n, f in before.items() if f.round < state.round and n != name}
        members = applied.identities(state.applied, state.round)
        kept[name] = before.get(name, _Figures(state.round, members))
        self._by_name = dict(list(kept.items())[-KEPT_STATES:])

    def note_own(self, state: OuterState, loss: float) -> None:
        """This node evaluated a state; nothing is told of a loss that is out of bounds."""
        self.own = None
        if 0.0 <= loss <= limits.MAX_LOSS_NATS:
            self.own = name_of(state), _as_told(loss)
            self.note(self._me, *self.own)

    def note(self, signer: NodeId, name: bytes, loss: float) -> None:
        """Take a figure, checked and authentic; what is of no use is passed over.

        Args:
            signer: Who says so.
            name: Of the state that it evaluated.
            loss: Nats per token, 0 to `limits.MAX_LOSS_NATS`. A later one replaces it.
        """
        figures = self._by_name.get(name)
        if figures is not None and signer in figures.members:
            figures.losses[signer] = loss

    def newest(self) -> SwarmLoss | None:
        """Of the newest state with figures of enough members; None before there are any.

        Enough are half of the most that any state kept here has, and `MIN_FIGURES` if one has:
        so the first to speak of a new state, who may lie, is not shown alone.
        """
        most = max((len(f.losses) for f in self._by_name.values()), default=0)
        enough = max(1, -(-most // 2), min(most, MIN_FIGURES))
        for figures in reversed(self._by_name.values()):
            if len(figures.losses) >= enough:
                return figures.conclude()
        return None


def name_of(state: OuterState) -> bytes:
    """What a figure calls its state: the first bytes of its digest."""
    return state.digest[: limits.NAME_BYTES]


def _as_told(loss: float) -> float:
    """As others read it, so that all have the same numbers."""
    told: float = struct.unpack("<f", struct.pack("<f", loss))[0]
    return told
