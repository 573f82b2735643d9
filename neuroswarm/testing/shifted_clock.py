"""Real time, as a machine sees it whose clock is wrong, or that was stopped for a while."""

from __future__ import annotations

from neuroswarm.clock import SystemClock


class ShiftedClock(SystemClock):
    """The machine's clocks, moved."""

    def __init__(self, *, wall_offset_s: float = 0.0) -> None:
        """Start with a wall clock that is before the real one by so many seconds."""
        self.wall_offset_s = wall_offset_s
        self._stopped_s = 0.0
        self._suspended_s = 0.0

    def stop(self, duration_s: float) -> None:
        """As if the process had stood still for so long (SIGSTOP)."""
        self._stopped_s += duration_s

    def suspend(self, duration_s: float) -> None:
        """As if the machine had been suspended for so long."""
        self._suspended_s += duration_s

    def monotonic(self) -> float:
        """Seconds of the real clock and of all stops."""
        return super().monotonic() + self._stopped_s

    def boottime(self) -> float:
        """Seconds of the real clock, of all stops and suspensions."""
        return super().boottime() + self._stopped_s + self._suspended_s

    def wall(self) -> float:
        """Seconds since 1970, wrong by the offset."""
        return super().wall() + self.wall_offset_s
