"""What every signer has said in the latest rounds, and the proof when it said two things.

Knows nothing of what follows from a statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.values import NodeId
from neuroswarm.wire import messages
from neuroswarm.wire.signed import Kind, Signed

Statement = (
    messages.Contribution
    | messages.Skip
    | messages.Ready
    | messages.Seal
    | messages.Ballot
    | messages.Confirm
)

_DECODERS: dict[Kind, Callable[[bytes], Statement]] = {
    Kind.CONTRIBUTION: messages.decode_contribution,
    Kind.SKIP: messages.decode_skip,
    Kind.READY: messages.decode_ready,
    Kind.SEAL: messages.decode_seal,
    Kind.BALLOT: messages.decode_ballot,
    Kind.CONFIRM: messages.decode_confirm,
}
_SAID_ONCE = frozenset({Kind.CONTRIBUTION, Kind.BALLOT, Kind.CONFIRM})
"""Kinds of which an honest signer makes one in a round on a base digest."""


MAX_PER_SIGNER = 128
"""Statements of one signer that are remembered: several times what an honest one makes in the
rounds that are."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Two statements that no honest signer makes both of; anyone can check it."""

    first: Signed
    second: Signed

    @property
    def signer(self) -> NodeId:
        """Who is proven to equivocate."""
        return self.first.signer


def decode(signed: Signed) -> Statement:
    """Read the body of a verified statement about a round; SchemaMismatch for other kinds."""
    decoder = _DECODERS.get(signed.kind)
    if decoder is None:
        raise SchemaMismatch(f"not a statement of a round: {signed.kind.name.lower()}")
    return decoder(signed.body)


def check_proof(first: Signed, second: Signed) -> Proof:
    """Make a proof of two verified statements, or refuse: ProtocolViolation says why."""
    said, again = decode(first), decode(second)
    same = (first.kind, first.public_key) == (second.kind, second.public_key)
    if not same or first.kind not in _SAID_ONCE or first.body == second.body:
        raise ProtocolViolation("not a proof: statements that one honest signer may make")
    if (said.round, said.base_digest) != (again.round, again.base_digest):
        raise ProtocolViolation("not a proof: statements about different rounds")
    return Proof(first, second)


class Register:
    """First statement of each kind, round, base digest and signer, bounded to recent rounds.

    Bounded in all, and for every signer: one that says more than an honest one can fills nothing
    but its own share, and strangers together no more than a quarter.
    """

    def __init__(self, max_statements: int = 65536, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._max = max_statements
        self._max_bytes = max_bytes
        self._said: dict[tuple[int, Kind, bytes, NodeId], Signed] = {}
        self._counts: Counter[NodeId] = Counter()
        self._bytes = 0

    def note(
        self, signed: Signed, statement: Statement, *, is_stranger: bool = False
    ) -> Proof | None:
        """Remember a statement, if there is room; the proof if its signer said another before.

        Args:
            signed: The statement, verified.
            statement: Its decoded body.
            is_stranger: Whether the signer is no peer that this node knows.
        """
        if signed.kind not in _SAID_ONCE:
            return None
        key = _key(signed, statement)
        before = self._said.get(key)
        if before is None:
            if self._has_room(signed, is_stranger):
                self._said[key] = signed
                self._counts[signed.signer] += 1
                self._bytes += len(signed.body)
            return None
        return None if before.body == signed.body else Proof(before, signed)

    def holds(self, signed: Signed, statement: Statement) -> bool:
        """Whether it is remembered, or of a kind that need not be."""
        return signed.kind not in _SAID_ONCE or _key(signed, statement) in self._said

    def find(self, kind: Kind, round_: int, base_digest: bytes) -> list[Signed]:
        """All first statements of a kind about one round."""
        wanted = (round_, kind, base_digest)
        return [s for (r, k, base, _), s in self._said.items() if (r, k, base) == wanted]

    def forget_before(self, round_: int) -> None:
        """Drop what was said about rounds before `round_`."""
        self._said = {key: s for key, s in self._said.items() if key[0] >= round_}
        self._counts = Counter(signer for _, _, _, signer in self._said)
        self._bytes = sum(len(signed.body) for signed in self._said.values())

    def _has_room(self, signed: Signed, is_stranger: bool) -> bool:
        share = 4 if is_stranger else 1
        return (
            self._counts[signed.signer] < MAX_PER_SIGNER
            and share * len(self._said) < self._max
            and share * (self._bytes + len(signed.body)) <= self._max_bytes
        )


def _key(signed: Signed, statement: Statement) -> tuple[int, Kind, bytes, NodeId]:
    return statement.round, signed.kind, statement.base_digest, signed.signer
