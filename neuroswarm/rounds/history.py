"""The finished rounds of the lineage that a node stands on, and what of them outlives a restart.

Knows nothing of other lineages (`neuroswarm.rounds.lineage`).
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuroswarm.errors import CheckpointCorrupt, PeerError
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import HASH_BYTES, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import decode_confirm, parse, set_hash
from neuroswarm.wire.signed import SIGNED_OVERHEAD_BYTES, Signed, verify

MAX_DIGESTS = 65536
"""Rounds whose digest is remembered in memory, so that a peer that was away long is recognised."""

MAX_DIGESTS_ON_DISK = 1024

MAX_CONFIRM_BYTES = 1024 * 1024
"""Confirms kept of one round, in bytes: those of three rounds fit into one message."""


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """One round that was committed: where it started, what it applied, where it led."""

    round: int
    base_digest: bytes
    next_digest: bytes
    contributions: tuple[bytes, ...]
    """Agreed ids, ascending; empty for a round learned by a download."""
    confirms: tuple[Signed, ...]
    """Verified confirms of exactly that set, one per signer."""

    @property
    def set_hash(self) -> bytes:
        """Name of the applied set."""
        return set_hash(self.contributions)

    @property
    def signers(self) -> frozenset[NodeId]:
        """Who confirmed it."""
        return frozenset(confirm.signer for confirm in self.confirms)


class History:
    """The latest finished rounds, and the digests of many more."""

    def __init__(
        self, round_: int, digest: bytes, *, earlier: Mapping[int, bytes] | None = None
    ) -> None:
        """Start at a state.

        Args:
            round_: Its round.
            digest: Its digest.
            earlier: Digests of earlier rounds of its lineage.
        """
        self.round = round_
        """Round of the outer state held."""
        self.digest = digest
        """Its digest."""
        self._finished: deque[FinishedRound] = deque(maxlen=limits.MAX_LINEAGE_ROUNDS)
        self._digests = dict(earlier or {})
        self._remember(round_, digest)

    def append(self, finished: FinishedRound) -> None:
        """Note the round that led to the state now held."""
        assert finished.base_digest == self.digest, "rounds of a lineage join end to end"
        confirms = _within_bounds(finished.confirms)
        self._finished.append(replace(finished, confirms=confirms))
        self.round, self.digest = finished.round + 1, finished.next_digest
        self._remember(self.round, self.digest)

    def rewind(self, round_: int, digest: bytes) -> None:
        """Go back to an earlier state of this lineage, held in `round_`."""
        while self._finished and self._finished[-1].round >= round_:
            self._finished.pop()
        self._digests = self.digests_before(round_)
        self.round, self.digest = round_, digest
        self._remember(round_, digest)

    def digest_at(self, round_: int) -> bytes | None:
        """Digest of the outer state of a round, or None if it is not remembered."""
        return self._digests.get(round_)

    def digests_before(self, round_: int) -> dict[int, bytes]:
        """Remembered digests of the rounds before `round_`."""
        return {r: digest for r, digest in self._digests.items() if r < round_}

    def digests_since(self, round_: int) -> list[bytes]:
        """Remembered digests of the newest rounds from `round_` on, at most 64."""
        first = max(round_, self.round + 1 - limits.MAX_LINEAGE_ROUNDS)
        found = (self._digests.get(r) for r in range(first, self.round + 1))
        return [digest for digest in found if digest is not None]

    def find(self, round_: int) -> FinishedRound | None:
        """The finished round of that number, if it is remembered."""
        return next((f for f in reversed(self._finished) if f.round == round_), None)

    def add_confirm(self, round_: int, confirm: Signed) -> None:
        """Keep one more confirm of a finished round's set, heard late."""
        for index, f in enumerate(self._finished):
            if f.round == round_ and confirm.signer not in f.signers:
                confirms = _within_bounds((*f.confirms, confirm))
                self._finished[index] = replace(f, confirms=confirms)

    def since(self, round_: int) -> list[FinishedRound]:
        """Finished rounds from `round_` on, ascending, without gaps."""
        return [f for f in self._finished if f.round >= round_]

    def to_json(self) -> dict[str, Any]:
        """What outlives a restart: digests of the last rounds, the last round with its confirms."""
        rounds = sorted(self._digests)[-MAX_DIGESTS_ON_DISK:]
        packed = b"".join(self._digests[r] for r in rounds)
        last = self._finished[-1] if self._finished else None
        return {
            "rounds": _to_spans(rounds),
            "digests": base64.b64encode(packed).decode(),
            "last_set": [] if last is None else [c.hex() for c in last.contributions],
            "last_confirms": [] if last is None else [_to_text(c) for c in last.confirms],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], round_: int, digest: bytes) -> History:
        """The history that `to_json` described, at the state that lay beside it.

        If the last round is not the one that led to that state, it is left out.

        Raises:
            CheckpointCorrupt: something is missing or does not fit.
        """
        try:
            rounds = [r for first, count in value["rounds"] for r in range(first, first + count)]
            packed = base64.b64decode(value["digests"])
            if len(packed) != HASH_BYTES * len(rounds):
                raise ValueError(f"{len(packed)} bytes of digests of {len(rounds)} rounds")
            pieces = (packed[i : i + HASH_BYTES] for i in range(0, len(packed), HASH_BYTES))
            history = cls(round_, digest, earlier=dict(zip(rounds, pieces, strict=True)))
            base = history.digest_at(round_ - 1)
            confirms = tuple(_from_text(text) for text in value["last_confirms"])
            agreed = tuple(bytes.fromhex(text) for text in value["last_set"])
            told = {(c.round, c.base_digest) for c in (decode_confirm(s.body) for s in confirms)}
        except (KeyError, TypeError, ValueError, binascii.Error, PeerError) as error:
            raise CheckpointCorrupt(f"history cannot be read: {error}") from error
        if base is not None and told == {(round_ - 1, base)}:
            history._finished.append(FinishedRound(round_ - 1, base, digest, agreed, confirms))
        return history

    def _remember(self, round_: int, digest: bytes) -> None:
        self._digests[round_] = digest
        if len(self._digests) > MAX_DIGESTS:
            del self._digests[min(self._digests)]


def _within_bounds(confirms: Sequence[Signed]) -> tuple[Signed, ...]:
    """The first confirms, as many as the bounds allow."""
    sizes = itertools.accumulate(len(c.body) + SIGNED_OVERHEAD_BYTES for c in confirms)
    fitting = sum(size <= MAX_CONFIRM_BYTES for size in sizes)
    return tuple(confirms[: min(fitting, limits.MAX_SET)])


def _to_spans(rounds: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as [first, count] of runs without gaps."""
    spans: list[list[int]] = []
    for number in rounds:
        if spans and number == sum(spans[-1]):
            spans[-1][1] += 1
        else:
            spans.append([number, 1])
    return spans


def _to_text(signed: Signed) -> str:
    return base64.b64encode(signed.to_proto().SerializeToString()).decode()


def _from_text(text: str) -> Signed:
    return verify(parse(envelope_pb2.Signed, base64.b64decode(text)))
