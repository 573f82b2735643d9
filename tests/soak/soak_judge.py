"""What the nodes' event logs say about one another: who stands where, since when, on what.

Pure functions of what was read; refuses to know of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_DIFFERING = 2
"""Rounds for which connected peers may hold different digests."""
HEAL_ROUNDS = 3
"""Rounds that they get besides, after they were apart."""
KEPT_ROUNDS = 400
MAX_MB_PER_HOUR = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """A node moved to another outer state."""

    time: float
    """Wall clock, seconds."""
    round: int
    digest: str
    is_repair: bool
    is_download: bool
    loss: float | None
    """On held-out text, nats."""

    @classmethod
    def parse(cls, event: Mapping[str, Any]) -> Step:
        """From a `commit` event of the log."""
        return cls(
            time=event["time"],
            round=event["round"],
            digest=event["digest"],
            is_repair=event["is_repair"],
            is_download=event["is_download"],
            loss=event["held_out_loss"],
        )


@dataclass
class Track:
    """The lineage that a node stands on."""

    held: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Digest of each round's outer state, and when it was reached; a repair replaces them."""

    @property
    def tip(self) -> int:
        """Round of the newest state; -1 without one."""
        return max(self.held, default=-1)

    def add(self, step: Step) -> None:
        """Move on; what a repair or a download leaves behind is forgotten."""
        if step.is_repair or step.round <= self.tip:
            self.rewind(-1 if step.is_download else step.round - 1)
        self.held[step.round] = (step.digest, step.time)
        if len(self.held) > KEPT_ROUNDS:
            del self.held[min(self.held)]

    def rewind(self, round_: int) -> None:
        """Forget the rounds after this one."""
        self.held = {r: what for r, what in self.held.items() if r <= round_}


def find_common(one: Track, two: Track) -> tuple[int, float] | None:
    """The newest round that both reached with the same digest, and when both had; or None."""
    for round_ in sorted(one.held.keys() & two.held.keys(), reverse=True):
        (digest, at), (other, other_at) = one.held[round_], two.held[round_]
        if digest == other:
            return round_, max(at, other_at)
    return None


def count_apart(one: Track, two: Track, since: float) -> tuple[int, int]:
    """For how many rounds two connected peers have held different digests.

    Args:
        one: Of a peer.
        two: Of another one.
        since: From when on both have lived and reached each other.

    Returns:
        Rounds that both finished since then without a digest in common, and how many they may.
    """
    common = find_common(one, two)
    round_, at = common if common is not None else (-1, 0.0)
    own = [
        sum(r > round_ and reached >= since for r, (_, reached) in track.held.items())
        for track in (one, two)
    ]
    return min(own), MAX_DIFFERING if at >= since else MAX_DIFFERING + HEAL_ROUNDS


def is_one_lineage(tracks: Sequence[Track], since: float) -> bool:
    """Whether all hold the same digest of a round at most two behind, reached since then."""
    newest = max((track.tip for track in tracks), default=-1)
    for round_ in range(newest, max(-1, newest - 3), -1):
        held = [track.held.get(round_) for track in tracks]
        if None in held or max(at for _, at in held) < since:
            continue
        if len({digest for digest, _ in held}) == 1:
            return True
    return False


def share_equal_at_once(
    steps: Mapping[str, Iterable[Step]], is_counted: Mapping[int, bool] | None = None
) -> tuple[float, int]:
    """Of the rounds that several nodes finished themselves, those with one digest at first.

    Args:
        steps: By node, in their order.
        is_counted: Rounds to leave out are False; None counts all.

    Returns:
        The share, 0 if none is counted, and the number of rounds.
    """
    first: dict[int, dict[str, str]] = {}
    for name, made in steps.items():
        for step in made:
            if not step.is_download:
                first.setdefault(step.round, {}).setdefault(name, step.digest)
    rounds = [
        digests
        for round_, digests in first.items()
        if len(digests) > 1 and (is_counted is None or is_counted.get(round_, False))
    ]
    equal = sum(len(set(digests.values())) == 1 for digests in rounds)
    return (equal / len(rounds) if rounds else 0.0), len(rounds)


@dataclass(frozen=True, slots=True)
class Slope:
    """How a process's memory went."""

    node: str
    life: int
    minutes: float
    """Measured, without the warm-up."""
    mb_per_hour: float
    first_mb: float
    last_mb: float
    is_judged: bool

    @property
    def is_too_steep(self) -> bool:
        """Whether it counts, and grows too fast."""
        return self.is_judged and self.mb_per_hour > MAX_MB_PER_HOUR


def fit_slope(
    node: str,
    life: int,
    samples: Sequence[tuple[float, float]],
    *,
    warm_up_s: float,
    least_s: float,
) -> Slope | None:
    """A line through a life's memory, by least squares.

    Args:
        node: Whose.
        life: Which of its lives.
        samples: (seconds, MB), ascending.
        warm_up_s: Seconds after the first sample that are left out.
        least_s: Seconds that the others span where they are judged.

    Returns:
        None where less than 3 samples are left.
    """
    late = [(t, mb) for t, mb in samples if t >= samples[0][0] + warm_up_s]
    if len(late) < 3 or late[-1][0] <= late[0][0]:
        return None
    mean_t = sum(t for t, _ in late) / len(late)
    mean_mb = sum(mb for _, mb in late) / len(late)
    spread = sum((t - mean_t) ** 2 for t, _ in late)
    slope = sum((t - mean_t) * (mb - mean_mb) for t, mb in late) / spread
    span_s = late[-1][0] - late[0][0]
    return Slope(
        node=node,
        life=life,
        minutes=span_s / 60,
        mb_per_hour=3600 * slope,
        first_mb=late[0][1],
        last_mb=late[-1][1],
        is_judged=span_s >= least_s,
    )


def compare_losses(
    losses: Sequence[tuple[float, float]], began: float, ended: float
) -> tuple[float, float] | None:
    """Mean held-out losses of the first and the last tenth of a run; None if one has none.

    Args:
        losses: (seconds, nats).
        began: Seconds.
        ended: Seconds.
    """
    tenth = (ended - began) / 10
    first = [loss for at, loss in losses if began <= at <= began + tenth]
    last = [loss for at, loss in losses if ended - tenth <= at <= ended]
    if not first or not last:
        return None
    return sum(first) / len(first), sum(last) / len(last)
