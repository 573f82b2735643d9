"""The donors of one download: who is asked, who is left alone for a while, who is out.

Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from neuroswarm.values import NodeId, PeerAddress

NUM_DONORS = 3
"""Donors at once, where there are so many."""

PIECES_PER_DONOR = 2
"""Pieces asked of one donor at once, so that it need not wait for the next request."""

REQUESTS_PER_S = 50.0
BURST = 500.0
"""Pieces asked of one donor, a second on end and at once: well below what doors take for a flood
(`membership.door`), and 400 Mbit/s of each donor."""

MAX_KNOWN = 256
MAX_REST_S = 15.0
SLOW_S = 600.0
"""How long a donor that was left for a faster one is asked only where nobody else can be."""

BUSY_S = (0.5, 2.0)
"""Rest of a donor that is busy, drawn between these."""

_RATE_GAIN = 0.5


@dataclass(eq=False, slots=True)
class Donor:
    """One donor, as this download knows it."""

    address: PeerAddress
    num_under_way: int = 0
    rate: float | None = None
    """Bytes per second of one piece, smoothed."""
    rests_until: float = float("-inf")
    asked_until: float = float("-inf")
    """Up to when its requests are used up, were they spread evenly."""
    slow_until: float = float("-inf")
    num_strikes: int = 0
    is_chosen: bool = False
    is_out: bool = False
    bytes_given: int = 0

    @property
    def node_id(self) -> NodeId:
        """Who it is."""
        return self.address.node_id


class DonorPool:
    """Chooses among the candidates; the first ones among them are preferred."""

    def __init__(self, candidates: Callable[[], Sequence[PeerAddress]], seed: int) -> None:
        """Choose among these.

        Args:
            candidates: Peers that may hold the state now, best first.
            seed: Of the rests of busy donors.
        """
        self._candidates = candidates
        self._random = random.Random(seed)
        self._donors: dict[NodeId, Donor] = {}

    @property
    def chosen(self) -> list[Donor]:
        """Donors that are asked now."""
        return [donor for donor in self._donors.values() if donor.is_chosen]

    @property
    def donors(self) -> list[Donor]:
        """All that were ever heard of."""
        return list(self._donors.values())

    def pick(self, now: float) -> list[Donor]:
        """Who has room for one more piece, whoever should be asked first coming first.

        A further donor comes before a second piece from one that is at work already, and a slow
        one last: for one piece at a time of all slow ones.
        """
        present = self._refresh()
        others = [d for d in present if not d.is_chosen and _can_give(d, now)]
        self._choose_one(others, now)
        slow = [donor for donor in self.chosen if donor.slow_until > now]
        is_slow_one_at_work = any(donor.num_under_way for donor in slow)
        free = [
            donor
            for donor in self.chosen
            if donor.num_under_way < PIECES_PER_DONOR
            and donor.asked_until <= now
            and not (is_slow_one_at_work and donor in slow)
        ]
        return sorted(free, key=lambda donor: (donor in slow, donor.num_under_way))

    def _choose_one(self, others: Sequence[Donor], now: float) -> None:
        """One donor more, if there are few; a slow one where there is no other."""
        num_fast = sum(donor.slow_until <= now for donor in self.chosen)
        fast = [donor for donor in others if donor.slow_until <= now]
        if fast and num_fast < NUM_DONORS:
            fast[0].is_chosen = True
        elif others and not fast and not self.chosen:
            others[0].is_chosen = True

    def asked(self, donor: Donor, now: float) -> None:
        """It was asked for a piece."""
        begins = max(donor.asked_until, now - BURST / REQUESTS_PER_S)
        donor.asked_until = begins + 1 / REQUESTS_PER_S

    def gave(self, donor: Donor, num_bytes: int, elapsed_s: float) -> None:
        """It brought bytes of a piece in that time."""
        rate = num_bytes / max(elapsed_s, 1e-3)
        donor.rate = rate if donor.rate is None else donor.rate + _RATE_GAIN * (rate - donor.rate)
        donor.num_strikes = 0

    def left(self, donor: Donor, rate: float, now: float) -> None:
        """It gives so few bytes per second that others are asked instead."""
        donor.rate, donor.slow_until, donor.is_chosen = rate, now + SLOW_S, False

    def rate_of(self, peer: NodeId) -> float | None:
        """Bytes per second of one piece from a peer, smoothed; None if it gave none yet."""
        return self._donors[peer].rate if peer in self._donors else None

    def is_open(self, peer: NodeId, now: float) -> bool:
        """Whether a peer can be asked, and was not found slow."""
        known = self._donors.get(peer)
        return known is None or (_can_give(known, now) and known.slow_until <= now)

    def failed(self, donor: Donor, now: float) -> None:
        """It did not answer, or made no progress: longer and longer rests."""
        donor.num_strikes += 1
        self._rest(donor, now + min(MAX_REST_S, 2.0 ** (donor.num_strikes - 1)))

    def was_busy(self, donor: Donor, now: float) -> None:
        """It serves others: ask it again soon, not at the same moment as they."""
        self._rest(donor, now + self._random.uniform(*BUSY_S))

    def drop(self, donor: Donor) -> None:
        """It does not hold the state, or lies: never ask it again."""
        donor.is_out, donor.is_chosen = True, False

    @property
    def is_hopeless(self) -> bool:
        """Whether there are candidates, and every one is out."""
        present = self._refresh()
        return bool(present) and all(donor.is_out for donor in present)

    def _rest(self, donor: Donor, until: float) -> None:
        donor.is_chosen = False
        donor.rests_until = max(donor.rests_until, until)

    def _refresh(self) -> list[Donor]:
        """The present candidates, in order; those that vanished are chosen no more."""
        present = []
        candidates = self._candidates()
        if len(self._donors) >= MAX_KNOWN:
            self._forget_all_but({address.node_id for address in candidates})
        for address in candidates:
            known = self._donors.get(address.node_id)
            if known is None and len(self._donors) < MAX_KNOWN:
                known = self._donors[address.node_id] = Donor(address)
            if known is not None:
                known.address = address
                present.append(known)
        there = {donor.node_id for donor in present}
        for donor in self.chosen:
            donor.is_chosen = donor.node_id in there or donor.num_under_way > 0
        return present

    def _forget_all_but(self, there: Container[NodeId]) -> None:
        """Of a download that never ends most donors have gone; those that lied stay out."""
        self._donors = {
            peer: donor
            for peer, donor in self._donors.items()
            if peer in there or donor.num_under_way or donor.is_out
        }


def _can_give(donor: Donor, now: float) -> bool:
    return not donor.is_out and donor.rests_until <= now
