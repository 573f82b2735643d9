"""Numbers of a run: bytes, steps, latency, utilisation, losses, and returns after a crash.

Pure functions of the peers' records. Byte counts are of whole messages, without the framing of
gRPC, TLS and UDP below them.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from neuroswarm.demo.events import Committed, Event, PeerRecord

BYTES_PER_FLOAT = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was sent between the first and the last round that all peers committed."""

    first_round: int
    last_round: int
    bytes_per_peer_per_round: float
    bytes_vs_allreduce: float
    """Bytes of a ring all-reduce of fp32 gradients at each of the steps, over those sent."""
    inner_steps_per_round: float
    bytes_before: float
    """Mean bytes that a peer had sent before: joining, state downloads, rounds with fewer."""


@dataclass(frozen=True, slots=True)
class Point:
    """Held-out loss of an outer state, and the inner steps behind it."""

    round: int
    steps: int
    """Of the peer that took most."""
    loss: float


def measure_traffic(peers: Sequence[PeerRecord]) -> Traffic | None:
    """Bytes and steps in the window of full rounds; None if there are not two of them.

    The window goes from the first to the last round that every peer committed by itself (no
    download).

    Args:
        peers: Those that lived through the whole window, hostile ones included.
    """
    by_round = [{e.round: e for e in p.committed if not e.is_download} for p in peers]
    common = sorted(set.intersection(*(set(events) for events in by_round))) if by_round else []
    if len(common) < 2:
        return None
    first, last = common[0], common[-1]
    spans = [(events[first], events[last]) for events in by_round]
    num_bytes = sum(end.bytes_sent - start.bytes_sent for start, end in spans)
    steps = sum(end.total_inner_steps - start.total_inner_steps for start, end in spans)
    num_peers, rounds = len(peers), last - first
    per_step = allreduce_bytes(num_peers, spans[0][0].num_params)
    return Traffic(
        first_round=first,
        last_round=last,
        bytes_per_peer_per_round=num_bytes / num_peers / rounds,
        bytes_vs_allreduce=per_step * steps / max(1, num_bytes),
        inner_steps_per_round=steps / num_peers / rounds,
        bytes_before=sum(start.bytes_sent for start, _ in spans) / num_peers,
    )


def allreduce_bytes(num_peers: int, num_params: int) -> float:
    """Bytes that each of N peers sends in a ring all-reduce of P float32: 2 (N - 1) / N * 4 P.

    Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 3.
    """
    return 2 * (num_peers - 1) / num_peers * BYTES_PER_FLOAT * num_params


def commit_latencies(peers: Sequence[PeerRecord]) -> list[float]:
    """Seconds from the last publication of an agreed set to the new state applied.

    One for every commit of an honest peer whose set had contributions of at least two peers,
    all of them with a known time of publication. Needs all clocks to be one machine's.
    """
    published = {e.contribution: e.time for peer in peers for e in peer.published}
    return [
        event.time - max(published[c] for c in event.contributions)
        for peer in peers
        if not peer.is_hostile
        for event in peer.committed
        if not event.is_repair and len(event.contributions) > 1
        if all(c in published for c in event.contributions)
    ]


def median_or_none(values: Iterable[float]) -> float | None:
    """The median; None of nothing."""
    known = list(values)
    return statistics.median(known) if known else None


def mean_utilisation(peers: Sequence[PeerRecord]) -> float | None:
    """Share of wall time in inner steps between commits, over all peers; None without two."""
    pairs = [pair for peer in peers for pair in _neighbours(peer)]
    wall_s = sum(after.time - before.time for before, after in pairs)
    step_s = sum(after.step_s - before.step_s for before, after in pairs)
    return step_s / wall_s if wall_s > 0 else None


def foreign_contributions_used(peers: Sequence[PeerRecord]) -> int:
    """Contributions of others that outer steps used, summed over peers."""
    return sum(event.foreign_used for peer in peers for event in peer.committed)


def loss_curve(peers: Sequence[PeerRecord]) -> list[Point]:
    """Held-out loss by round, over the inner steps of the peer that took most.

    Where peers held different bits, the median of their losses.
    """
    events = sorted((e for p in peers for e in p.committed), key=lambda event: event.round)
    points = []
    for r, group in itertools.groupby(events, key=lambda event: event.round):
        alike = list(group)
        losses = [e.held_out_loss for e in alike if e.held_out_loss is not None]
        if losses:
            steps = max(e.total_inner_steps for e in alike)
            points.append(Point(r, steps, statistics.median(losses)))
    return points


def bytes_by_round(peers: Sequence[PeerRecord]) -> list[tuple[int, float]]:
    """(round, mean bytes that a peer sent from the round before to this one), ascending."""
    spent: dict[int, list[int]] = {}
    for peer in peers:
        for before, after in _neighbours(peer):
            if after.round == before.round + 1:
                spent.setdefault(after.round, []).append(after.bytes_sent - before.bytes_sent)
    return [(r, statistics.fmean(values)) for r, values in sorted(spent.items())]


def last_steps(peers: Sequence[PeerRecord]) -> list[int]:
    """Inner steps of each peer at its last commit; 0 before the first."""
    return [max((e.total_inner_steps for e in p.committed), default=0) for p in peers]


@dataclass(frozen=True, slots=True)
class Return:
    """How a peer that was killed came back."""

    peer: str
    round_at_start: int
    """Round that the others worked on when its process was started again."""
    round_at_join: int | None
    """Round that they worked on when it held their state again; None if it never did."""
    contributed_in: int | None
    """First round whose agreed set had a contribution of its new life; None if none had."""
    seconds_to_join: float | None
    """From the start of the process to its first event."""

    @property
    def rounds_until_contributing(self) -> int | None:
        """Rounds after the one in which it was back; 0 is that one itself."""
        if self.contributed_in is None or self.round_at_join is None:
            return None
        return max(0, self.contributed_in - self.round_at_join)


def find_returns(peers: Sequence[PeerRecord]) -> list[Return]:
    """Every second life of a peer.

    Args:
        peers: The honest peers.
    """
    return [_follow(peer, peers) for peer in peers if len(peer.lives) > 1]


def _follow(peer: PeerRecord, peers: Sequence[PeerRecord]) -> Return:
    started_at = peer.lives[-1].started_at
    others = [e for p in peers if p is not peer for e in p.committed]
    own = {e.contribution for e in peer.published if e.time >= started_at}
    agreed = [e.round - 1 for e in others if own.intersection(e.contributions)]
    events: list[Event] = [*peer.published, *peer.committed]
    signs = [event.time for event in events if event.time >= started_at]
    joined_at = min(signs, default=None)
    return Return(
        peer=peer.name,
        round_at_start=_round_at(others, started_at),
        round_at_join=None if joined_at is None else _round_at(others, joined_at),
        contributed_in=min(agreed, default=None),
        seconds_to_join=None if joined_at is None else joined_at - started_at,
    )


def _round_at(events: Iterable[Committed], instant: float) -> int:
    return max((event.round for event in events if event.time <= instant), default=0)


def _neighbours(peer: PeerRecord) -> Iterator[tuple[Committed, Committed]]:
    """Commits next to each other in one life of the peer."""
    for before, after in itertools.pairwise(peer.committed):
        if not any(before.time < life.started_at <= after.time for life in peer.lives):
            yield before, after
