"""Whether a node may compute on a machine that others use: facts in, a reason to rest out.

Refuses to look at the machine or at a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.config.guest import GuestConfig

WORK = ""
"""No reason to rest."""

MAX_STALL = 0.2
"""Share of the time in which all programs may wait for memory."""

MAX_SWAPPED_BYTES_PER_S = 8 * 1024 * 1024
"""What the machine may write to swap: more than that is thrashing, not tidying up."""

MIN_ROOM_SHARE = 0.03
"""Share of all memory that must be left for others."""

EASED_S = 20.0
"""Seconds for which memory must have been enough before a node that gave way goes on."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine as it is now; None for what it does not tell."""

    minute: int = 0
    """Of the local day, 0 to 1439."""
    is_on_mains: bool | None = None
    others_load: float | None = None
    """Share of the processors' time that other programs take, 0 to 1."""
    room_share: float | None = None
    """Share of the memory that is left, 0 to 1."""
    memory_stall: float | None = None
    """Share of the time in which all programs wait for memory, 0 to 1."""
    swapped_bytes_per_s: float = 0.0
    """Written to swap lately."""


class Manners:
    """Decides, time after time, whether to rest; `decide` is a function of what it was told.

    A node that was just started works at once where it may.

    Args:
        config: What the user wants.
    """

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._reason: str | None = None
        self._good_since: float | None = None

    def decide(self, now: float, at: Conditions) -> str:
        """Why to rest; empty if there is no reason.

        A reason counts at once; that it is gone, only once it has stayed away for a while, so
        that a node does not come and go with every click of the machine's owner. Hours end by
        the clock alone.

        Args:
            now: Seconds of a monotonic clock.
            at: The machine as it is.
        """
        reason = self._find_reason(at)
        if reason:
            self._good_since = None
            self._reason = reason
            return reason
        before = self._reason
        if self._good_since is None:
            self._good_since = now
        if before and now - self._good_since < self._wait_s(before):
            return before
        self._reason = WORK
        return WORK

    def _find_reason(self, at: Conditions) -> str:
        config = self._config
        if thrashes(at):
            return "memory is short"
        if not config.allows(at.minute):
            return f"only at {', '.join(config.hours)}"
        if config.only_on_mains and at.is_on_mains is False:
            return "on battery"
        is_busy = at.others_load is not None and at.others_load > config.idle_below
        if config.only_when_idle and is_busy:
            return "the machine is in use"
        return WORK

    def _wait_s(self, reason: str) -> float:
        if reason == "memory is short":
            return EASED_S
        return 0.0 if reason.startswith("only at") else self._config.settle_s


def thrashes(at: Conditions) -> bool:
    """Whether programs wait for memory instead of working."""
    return (
        (at.memory_stall is not None and at.memory_stall > MAX_STALL)
        or at.swapped_bytes_per_s > MAX_SWAPPED_BYTES_PER_S
        or (at.room_share is not None and at.room_share < MIN_ROOM_SHARE)
    )
