"""When to write which checkpoint: decisions from values, no clock, no disk, no tasks.

Rules, first to last:

1. After trouble with the disk nothing is written until the pause is over.
2. An outer state that is not on the disk is written as soon as the budget has its bytes; of
   several only the newest. After 3 of them without an inner checkpoint the next one waits until
   the budget has the bytes of both.
3. An inner checkpoint is due after every outer sync, at the first sight of a risk, and when the
   interval is over and the node has trained since. It is written when the budget has its bytes
   and, unless this machine is at risk or an outer state waits for it, those of the next outer
   state as well. So a short budget stretches the intervals, outer states come first, and inner
   checkpoints come all the same.

At shutdown an inner checkpoint is written whatever the budget says.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from neuroswarm.hardware.facts import MachineFacts

MIN_AVAILABLE_MEMORY = 0.05
MAX_MEMORY_STALL = 0.10
MIN_BATTERY = 0.15
MIN_HEAT_MARGIN_C = 3.0
RISK_SPACING_S = 60.0
"""Least time between two checkpoints for the sake of risks: some come and go."""
PEER_SPACING_S = 600.0
"""Least time between two for the sake of leaving peers: any member may say that it leaves, as often
as it likes."""
MAX_OUTER_ALONE = 3
"""Outer states that are written on a short budget before it is saved up for an inner checkpoint."""


class Risk(enum.Enum):
    """Why the node, or its neighbourhood, may soon end."""

    MEMORY = "memory is short"
    BATTERY = "the battery is low"
    HEAT = "the machine is near its heat limit"
    PEER = "a peer is leaving"


def find_risks(facts: MachineFacts) -> frozenset[Risk]:
    """The risks that a machine's facts show; what is absent shows none."""
    memory, stall = facts.available_memory, facts.memory_stall
    is_short = memory is not None and memory < MIN_AVAILABLE_MEMORY
    is_stalled = stall is not None and stall > MAX_MEMORY_STALL
    is_low = facts.battery is not None and facts.battery < MIN_BATTERY and facts.is_discharging
    margin = facts.heat_margin_c
    is_hot = facts.is_throttled or (margin is not None and margin < MIN_HEAT_MARGIN_C)
    shown = {Risk.MEMORY: is_short or is_stalled, Risk.BATTERY: is_low, Risk.HEAT: is_hot}
    return frozenset(risk for risk, is_there in shown.items() if is_there)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the decision depends on."""

    since_inner_s: float
    """Seconds since the newest inner checkpoint was taken, or since the start."""
    has_trained: bool
    """Whether there was an inner step since then."""
    has_synced: bool
    """Whether the node has moved to another outer state since then."""
    is_outer_unwritten: bool
    """Whether the newest outer state is not on the disk."""
    new_risks: AbstractSet[Risk] = frozenset()
    """Risks at hand for which no checkpoint was written since they appeared."""
    since_risk_s: float = float("inf")
    """Seconds since the newest checkpoint for the sake of a risk."""
    since_peer_s: float = float("inf")
    """Seconds since the newest one for the sake of a leaving peer."""
    num_outer_alone: int = 0
    """Outer states written since the newest inner checkpoint."""
    budget_left: float = float("inf")
    """Bytes that may be written now."""
    budget_capacity: float = float("inf")
    """Bytes that may be left at most: what is larger fits when the budget is full."""
    outer_bytes: int = 0
    """Bytes of an outer state."""
    inner_bytes: int = 0
    """Bytes of the last inner checkpoint, or an estimate."""
    is_pausing: bool = False
    """Whether the disk is left alone after trouble."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write now."""

    outer: bool = False
    inner: bool = False
    reason: str = ""
    """Why the inner checkpoint, for the log."""
    is_short: bool = False
    """Whether the budget holds something back."""


def decide(situation: Situation, interval_s: float) -> Decision:
    """What to write now.

    Args:
        situation: As it is.
        interval_s: Seconds between inner checkpoints while nothing else happens.
    """
    if situation.is_pausing:
        return Decision()
    wants_outer, outer_bytes = situation.is_outer_unwritten, situation.outer_bytes
    reason = _why_inner(situation, interval_s)
    is_saving_up = situation.has_synced and situation.num_outer_alone >= MAX_OUTER_ALONE
    is_urgent = is_saving_up or bool(situation.new_risks - {Risk.PEER})
    # With an unwritten outer state, the inner checkpoint would write it along.
    first = outer_bytes if wants_outer else 0
    spare = 0 if is_urgent else outer_bytes
    inner = bool(reason) and _fits(situation, situation.inner_bytes + first, spare)
    outer = wants_outer and (inner or (not is_saving_up and _fits(situation, outer_bytes, 0)))
    is_short = (bool(reason) and not inner) or (wants_outer and not outer)
    return Decision(outer, inner, reason if inner else "", is_short)


def find_pressing(situation: Situation) -> frozenset[Risk]:
    """The risks for which a checkpoint is due now."""
    if situation.since_risk_s < RISK_SPACING_S:
        return frozenset()
    is_peer_heard = situation.since_peer_s >= PEER_SPACING_S
    return frozenset(situation.new_risks - (set() if is_peer_heard else {Risk.PEER}))


def _why_inner(situation: Situation, interval_s: float) -> str:
    pressing = find_pressing(situation)
    if pressing:
        return ", ".join(sorted(risk.value for risk in pressing))
    if situation.has_synced:
        return "outer sync"
    if situation.has_trained and situation.since_inner_s >= interval_s:
        return "interval"
    return ""


def _fits(situation: Situation, num_bytes: int, spare: int) -> bool:
    return situation.budget_left >= min(num_bytes + spare, situation.budget_capacity)
