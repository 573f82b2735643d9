"""The phases of a round, what its machine asks for, and what it is told at each poll.

Knows names only; the decisions are in `neuroswarm.rounds.agreement`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from neuroswarm.rounds.electorate import Electorate


class Phase(enum.Enum):
    """How far this node has come in the round."""

    TRAINING = "training"
    """Waiting until enough peers have taken their inner steps."""
    COLLECTING = "collecting"
    """Own contribution or skip is out; hearing the headers of the others."""
    SEALED = "sealed"
    """No further header is taken; payloads are revealed and pulled."""
    CLOSED = "closed"
    """Own ballot is out; hearing those of the others."""
    CONFIRMED = "confirmed"
    """Own confirm is out; counting those of the others."""
    DECIDED = "decided"
    """The set is agreed."""


class Action(enum.Enum):
    """What `Round.poll` asks its driver to do next, one at a time."""

    SAY_READY = "say ready"
    PUBLISH = "publish or skip"
    """Snapshot and publish, or sign a skip; answer with `published` or `skipped`."""
    SEND_SEAL = "send seal"
    """Sign and spread that no further contribution is taken."""
    REVEAL = "reveal"
    """Give out the own payload from now on, and pull those of the others."""
    SEND_BALLOT = "send ballot"
    """Sign and spread a ballot of `ballot`."""
    SEND_CONFIRM = "send confirm"
    """Sign and spread a confirm of `candidate`."""
    DECIDE = "decide"
    """Commit `decided`; comes once."""


@dataclass(frozen=True, slots=True)
class Instant:
    """What the machine is told of the outside at each poll."""

    now: float
    """Seconds of the monotonic clock."""
    electorate: Electorate
    is_voter: bool
    """Whether this node trains; an onlooker says nothing and follows the voters' confirms."""
    inner_steps: int
    """Own inner steps since the last publication."""
    steps_wanted: int
    """H: inner steps after which a peer is ready."""
    slowest_rtt_s: float | None
    """Round trip to the slowest live peer, seconds; None if not measured yet."""
    payload_s: float
    """Measured time to pull one payload, seconds."""
    is_deferring: bool = False
    """Whether this node lets its rounds rest, because most peers are elsewhere."""
    giving_s: float = 0.0
    """Time that this node's limited link takes for its own payload, as long as a peer has not got
    it; 0 if there is nothing to give, or no limit."""
