"""How peers behaved: offences add up to a score that fades, and too high a score is a ban.

Refuses to know how an offence is found out. Only ever pass the *authenticated* party: the caller
or answerer that TLS proved, or the signer of a statement that verified. A source address, or the
id in a statement that does not verify, is what anybody can write; whoever noted an offence against
it would let an attacker get its victim banned.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from neuroswarm.membership.bans import Ban
from neuroswarm.values import NodeId

BAN_SCORE = 100.0
"""Score at which a peer is banned; it starts again from 0 then."""

HALF_LIFE_S = 300.0
"""Seconds in which a score falls to its half."""

FIRST_BAN_S = 600.0
"""Seconds of a peer's first ban; each further one lasts twice as long."""

MAX_BAN_S = 24 * 3600.0
"""Longest ban by score; only proofs ban for good."""

_MAX_REPETITIONS = 16  # 2**16 first bans are far above the longest


class Offence(enum.StrEnum):
    """What a peer may do wrong, by what it says of the peer's intent."""

    EQUIVOCATION = "equivocation"
    """Two statements where there may be one. With the proof at hand ban for good instead."""
    WRONG_PAYLOAD = "wrong_payload"
    """Answered with bytes that are not those of the hash asked for; the answerer did it."""
    MALFORMED = "malformed"
    """A message or signed body that no correct node makes."""
    NON_FINITE = "non_finite"
    """A signed contribution whose values are infinite or not numbers."""
    REPLAY = "replay"
    """The caller brought what is over; late honest peers do so too, so it counts little."""
    IMPLAUSIBLE_CLAIM = "implausible_claim"
    """A signed claim of more work than the signer's own heartbeats allow (`membership.claims`)."""
    FLOOD = "flood"
    """More calls, bytes or heartbeats than allowed; noted at most once a second."""
    BAD_SIGNATURE = "bad_signature"
    """The caller brought a statement that does not verify; never held against the named signer."""


WEIGHTS: Mapping[Offence, float] = {
    Offence.EQUIVOCATION: 100.0,
    Offence.WRONG_PAYLOAD: 50.0,
    Offence.MALFORMED: 25.0,
    Offence.NON_FINITE: 50.0,
    Offence.REPLAY: 2.0,
    Offence.IMPLAUSIBLE_CLAIM: 20.0,
    Offence.FLOOD: 5.0,
    Offence.BAD_SIGNATURE: 25.0,
}
"""What each offence adds to the score; `BAN_SCORE` bans."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one peer behaved so far."""

    score: float
    """At the instant asked for, 0 to below `BAN_SCORE`."""
    counts: Mapping[Offence, int]
    """Offences so far, each kind that there was."""
    num_bans: int
    """Bans by score so far."""


@dataclass(slots=True)
class _Record:
    score: float = 0.0
    since: float = 0.0
    num_bans: int = 0
    counts: Counter[Offence] = field(default_factory=Counter)

    def score_at(self, now: float) -> float:
        return float(self.score * 0.5 ** (max(0.0, now - self.since) / HALF_LIFE_S))


class Conduct:
    """Scores of at most `max_nodes` peers; beyond that the one whose last offence is oldest goes.

    Times are instants of the monotonic clock, in seconds.
    """

    def __init__(self, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        self._records: OrderedDict[NodeId, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def note(self, node_id: NodeId, offence: Offence, now: float) -> Ban | None:
        """Count one offence of an authenticated party (see the module).

        Returns:
            The ban that it led to, which the caller puts into force; None if it led to none.
        """
        record = self._records.setdefault(node_id, _Record())
        self._records.move_to_end(node_id)
        record.counts[offence] += 1
        record.score = record.score_at(now) + WEIGHTS[offence]
        record.since = now
        if len(self._records) > self._max_nodes:
            self._records.popitem(last=False)
        if record.score < BAN_SCORE:
            return None
        record.score = 0.0
        duration_s = min(FIRST_BAN_S * 2.0**record.num_bans, MAX_BAN_S)
        record.num_bans = min(record.num_bans + 1, _MAX_REPETITIONS)
        return Ban(f"conduct: {_describe(record.counts)}", now + duration_s)

    def standings(self, now: float) -> Mapping[NodeId, Standing]:
        """Every peer that offended and is still remembered, by node id."""
        return {
            node_id: Standing(record.score_at(now), dict(record.counts), record.num_bans)
            for node_id, record in sorted(self._records.items())
        }


def _describe(counts: Counter[Offence]) -> str:
    return ", ".join(f"{num} x {offence}" for offence, num in sorted(counts.items()))
