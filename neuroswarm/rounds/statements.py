"""What every signer has said in the latest rounds, and the proof when it said two things.

Knows nothing of what follows from a statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.values import NodeId
from neuroswarm.wire import messages
from neuroswarm.wire.signed import Kind, Signed

Statement = (
    messages.Contribution | messages.Skip | messages.Ready | messages.Ballot | messages.Confirm
)

_DECODERS: dict[Kind, Callable[[bytes], Statement]] = {
    Kind.CONTRIBUTION: messages.decode_contribution,
    Kind.SKIP: messages.decode_skip,
    Kind.READY: messages.decode_ready,
    Kind.BALLOT: messages.decode_ballot,
    Kind.CONFIRM: messages.decode_confirm,
}
_SAID_ONCE = frozenset({Kind.CONTRIBUTION, Kind.BALLOT, Kind.CONFIRM})
"""Kinds of which an honest signer makes one in a round on a base digest."""


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
    """First statement of each kind, round, base digest and signer, bounded to recent rounds."""

    def __init__(self, max_statements: int = 65536) -> None:
        self._max = max_statements
        self._said: dict[tuple[int, Kind, bytes, NodeId], Signed] = {}

    def note(self, signed: Signed, statement: Statement) -> Proof | None:
        """Remember a statement; returns the proof if its signer said another before."""
        if signed.kind not in _SAID_ONCE:
            return None
        key = (statement.round, signed.kind, statement.base_digest, signed.signer)
        before = self._said.get(key)
        if before is None:
            if len(self._said) < self._max:
                self._said[key] = signed
            return None
        return None if before.body == signed.body else Proof(before, signed)

    def find(self, kind: Kind, round_: int, base_digest: bytes) -> list[Signed]:
        """All first statements of a kind about one round."""
        wanted = (round_, kind, base_digest)
        return [s for (r, k, base, _), s in self._said.items() if (r, k, base) == wanted]

    def forget_before(self, round_: int) -> None:
        """Drop what was said about rounds before `round_`."""
        self._said = {key: s for key, s in self._said.items() if key[0] >= round_}
