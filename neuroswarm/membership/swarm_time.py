"""What time it is by the peers' clocks, since this machine's may be wrong by days.

Small machines without a clock that runs on start in 1970, or when they were last shut down.
Intervals never depend on it (they are monotonic); what leaves the machine with an instant of the
calendar is to be judged by swarm time. Refuses to know where offsets come from.
"""

from __future__ import annotations

from collections.abc import Iterable

TOLERABLE_S = 60.0
"""Seconds that a clock may be off before its owner is told."""


def median_offset(offsets: Iterable[float]) -> float | None:
    """How far the swarm's clocks are before this machine's, seconds; None without peers.

    Args:
        offsets: Of distinct authenticated peers: what the peer's signed heartbeat says the time
            is, minus what this machine says, when the heartbeat came from that peer itself.

    Returns:
        The median; of an even number the middle one that is nearer to 0. As long as fewer than
        half of the peers lie, it is within what the honest ones say.
    """
    found = sorted(offsets)
    if not found:
        return None
    lower, upper = found[(len(found) - 1) // 2], found[len(found) // 2]
    return min(lower, upper, key=abs)


def swarm_time(wall: float, offset_s: float | None) -> float:
    """Seconds since 1970 by the swarm's clocks; by this machine's where there are no peers."""
    return wall if offset_s is None else wall + offset_s
