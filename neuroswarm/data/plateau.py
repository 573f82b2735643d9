"""Whether the loss has stopped falling, from its recent history.

Pure; refuses to know what follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class RoundLoss:
    """The losses of one round, nats per token; None where there is none."""

    held_out: float | None
    training: float | None


def has_plateaued(history: Sequence[RoundLoss], *, window: int, min_gain: float) -> bool:
    """Whether the newest rounds are hardly better than those before them.

    The median over the newest `window` rounds is compared with that over as many rounds before.
    It is that of the held-out loss; where a round has none, that of the training loss; where that
    is missing too, nothing is said.

    Args:
        history: Rounds, oldest first; older ones than 2 x `window` are not looked at.
        window: Rounds, at least 1.
        min_gain: Share of the loss by which it must have fallen, 0 to 1.

    Returns:
        True if it fell by less, or rose; False while the history is too short to tell.

    Source: as torch's ReduceLROnPlateau with a relative threshold.
        Differs: medians of two windows instead of the best value so far, so that no single
        round, lucky or not, decides.
    """
    recent = history[-2 * window :]
    if len(recent) < 2 * window:
        return False
    for losses in ([r.held_out for r in recent], [r.training for r in recent]):
        known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if len(known) == len(losses):
            before, after = median(known[:window]), median(known[window:])
            return before - after < min_gain * before
    return False
