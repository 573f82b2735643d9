"""How much an inner step trains on: draws from the data, and the pieces that memory bears.

A step is a number of draws, each of the sampler's size, so that its windows are known by numbers
whatever the memory; they go through the model in pieces, and their gradients add up. Knows nothing
of models and peers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DRAWS_PER_START = 16
"""Draws of a first step: its windows can be fewer or more by a sixteenth."""

MAX_GROWTH = 16
"""Most times the first step's draws."""

MAX_RATIO = 64.0
"""Most times that a peer counts as faster or slower than this node."""

KEPT = 0.15
"""Share by which a better number of draws may differ before it is taken."""

MEMORY_S = 20.0
"""Seconds of steps after which a measurement counts for a third."""


class Batching:
    """The size of inner steps, and how long they take.

    Threads: `note`, `halve`, `load` and `to_json` belong to the compute thread, `aim` to the event
    loop; single values may be read from any thread.
    """

    def __init__(
        self, *, num_draws: int = 1, piece: int | None = None, is_fixed: bool = True
    ) -> None:
        """Start with a size.

        Args:
            num_draws: Draws of the first step, at least 1.
            piece: Most windows that go through the model at once; None: a step's.
            is_fixed: Whether the user has set the size, so that only memory may cut it.
        """
        self.start_draws = num_draws
        """Draws of a step before anything is measured."""
        self.num_draws = num_draws
        """Draws of the next step."""
        self.piece = piece
        """Most windows that go through the model at once; None: all of a step."""
        self.is_fixed = is_fixed
        self.num_windows = 0
        """Windows of the newest step; 0 before the first."""
        self.num_halvings = 0
        """How often memory ran short in this life."""
        self._draws = 0.0
        self._seconds = 0.0
        self._is_warm = False

    def note(self, num_draws: int, num_windows: int, seconds: float) -> None:
        """A step took so long; the first one, which also warms up, is left out of the measurement.

        Args:
            num_draws: Its draws.
            num_windows: Their windows.
            seconds: What it took.
        """
        self.num_windows = num_windows
        if not self._is_warm:
            self._is_warm = True
            return
        kept = math.exp(-seconds / MEMORY_S)
        self._draws = kept * self._draws + num_draws
        self._seconds = kept * self._seconds + seconds

    @property
    def draw_s(self) -> float | None:
        """Seconds that a draw takes lately; None before the second step."""
        return self._seconds / self._draws if self._draws and self._seconds > 0 else None

    @property
    def start_step_s(self) -> float | None:
        """Seconds that a step of the first size takes here lately; None if not measured yet."""
        return None if self.draw_s is None else self.start_draws * self.draw_s

    def aim(self, step_s: float) -> None:
        """Let the next steps take about so many seconds, unless the user has set their size."""
        if self.is_fixed or self.draw_s is None:
            return
        wanted = choose_num_draws(step_s / self.draw_s, self.start_draws)
        if abs(wanted - self.num_draws) > KEPT * self.num_draws:
            self.num_draws = wanted

    def halve(self, num_windows: int) -> bool:
        """Cut the pieces in half, as memory ran short; whether that was possible.

        Args:
            num_windows: Windows of a step.
        """
        now = num_windows if self.piece is None else min(self.piece, num_windows)
        if now <= 1:
            return False
        self.piece = now // 2
        self.num_halvings += 1
        return True

    def to_json(self) -> dict[str, Any]:
        """What a node that is started again goes on with."""
        return {"num_draws": self.num_draws, "piece": self.piece}

    def load(self, kept: Mapping[str, Any]) -> None:
        """Take over what `to_json` returned; KeyError if something is missing.

        The size that the user has set stays, and so does what memory bears now if it is less. What
        was measured on another machine, or written by another hand, is kept within the limits.
        """
        num_draws, piece = int(kept["num_draws"]), kept["piece"]
        if not self.is_fixed:
            self.num_draws = choose_num_draws(num_draws, self.start_draws)
        if piece is not None:
            piece = max(1, int(piece))
            self.piece = piece if self.piece is None else min(self.piece, piece)


def choose_num_draws(wanted: float, start_draws: int) -> int:
    """The whole number of draws nearest to what is wanted, within limits.

    Args:
        wanted: Draws that take as long as a step should, > 0.
        start_draws: Draws of a first step.
    """
    return max(1, min(round(wanted), MAX_GROWTH * start_draws))


def choose_step_s(own_s: float, peers_s: list[float]) -> float:
    """How long steps should take in a swarm: the median of how long first steps take.

    Every peer computes it from the same heartbeats, and nobody's step time follows from
    another's, so it cannot drift; less than half of the peers can move it only between the
    others' values. A node alone gets its own, and with it its first size.

    Of an even number it is the geometric mean of the two in the middle, as sizes are compared by
    their ratio: of two nodes neither sets the other's steps alone. What a peer says counts as at
    most `MAX_RATIO` times more or less than what was measured here: so the only peer of a node,
    lying, makes its steps 8 times longer or shorter at the most, and two honest ones take steps of
    one time unless one is more than 64 times as fast.

    Args:
        own_s: Seconds of a step of the first size here, > 0.
        peers_s: The same of the peers that take part in rounds, each > 0.
    """
    least, most = own_s / MAX_RATIO, own_s * MAX_RATIO
    values = sorted([own_s, *(min(max(value, least), most) for value in peers_s)])
    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return math.sqrt(values[middle - 1] * values[middle])
