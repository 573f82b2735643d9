"""The donors of one download: who is asked, who is left alone for a while, who is out.

Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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

        A further donor comes before a second piece from one that is at work already.
        """
        present = self._refresh()
        if len(self.chosen) < NUM_DONORS:
            newcomer = next((d for d in present if not d.is_chosen and _can_give(d, now)), None)
            if newcomer is not None:
                newcomer.is_chosen = True
        free = [
            donor
            for donor in self.chosen
            if donor.num_under_way < PIECES_PER_DONOR and donor.asked_until <= now
        ]
        return sorted(free, key=lambda donor: donor.num_under_way)

    def asked(self, donor: Donor, now: float) -> None:
        """It was asked for a piece."""
        begins = max(donor.asked_until, now - BURST / REQUESTS_PER_S)
        donor.asked_until = begins + 1 / REQUESTS_PER_S

    def gave(self, donor: Donor, num_bytes: int, elapsed_s: float) -> None:
        """It brought bytes of a piece in that time."""
        rate = num_bytes / max(elapsed_s, 1e-3)
        donor.rate = rate if donor.rate is None else donor.rate + _RATE_GAIN * (rate - donor.rate)
        donor.num_strikes = 0

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
        for address in self._candidates():
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


def _can_give(donor: Donor, now: float) -> bool:
    return not donor.is_out and donor.rests_until <= now
