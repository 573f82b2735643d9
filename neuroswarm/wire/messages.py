"""Bodies of signed statements as frozen values, and their checked conversion from and to bytes.

Every `decode_*` takes the body of a verified statement and refuses what is out of its limits.
Knows nothing of rounds in progress: freshness and agreement are judged elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from neuroswarm.errors import SchemaMismatch
from neuroswarm.v1 import rounds_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_count, check_finite, check_hash, check_text

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class FragmentPayload:
    """One fragment's part of a contribution: index, hash and size of its coded bytes."""

    fragment: int
    payload_hash: bytes
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """Header of one node's pseudo-gradient of a round."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    architecture: bytes
    codec: str
    inner_steps: int
    tokens: int
    loss: float
    fragments: tuple[FragmentPayload, ...]

    @property
    def payload_bytes(self) -> int:
        """Coded bytes of all fragments together."""
        return sum(part.payload_bytes for part in self.fragments)

    def encode(self) -> bytes:
        """The body to sign."""
        parts = [
            rounds_pb2.FragmentPayload(
                fragment=p.fragment, payload_hash=p.payload_hash, payload_bytes=p.payload_bytes
            )
            for p in self.fragments
        ]
        return rounds_pb2.Contribution(
            swarm_id=self.swarm_id,
            round=self.round,
            base_digest=self.base_digest,
            architecture=self.architecture,
            codec=self.codec,
            inner_steps=self.inner_steps,
            tokens=self.tokens,
            loss=self.loss,
            fragments=parts,
        ).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Skip:
    """The signer publishes nothing in this round."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_progress(rounds_pb2.Skip(), self)


@dataclass(frozen=True, slots=True)
class Ready:
    """The signer has taken the round's inner steps."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_progress(rounds_pb2.Ready(), self)


@dataclass(frozen=True, slots=True)
class Seal:
    """The signer takes no further contributions to this round."""

    swarm_id: bytes
    round: int
    base_digest: bytes

    def encode(self) -> bytes:
        """The body to sign."""
        return rounds_pb2.Seal(
            swarm_id=self.swarm_id, round=self.round, base_digest=self.base_digest
        ).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Amendment:
    """The owner proposes other rules for the swarm; `rules` are not read yet."""

    swarm_id: bytes
    rules: bytes

    def encode(self) -> bytes:
        """The body to sign."""
        return rounds_pb2.Amendment(swarm_id=self.swarm_id, rules=self.rules).SerializeToString(
            deterministic=True
        )


@dataclass(frozen=True, slots=True)
class Ballot:
    """Ids of the contributions that the signer holds whole, ascending."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: tuple[bytes, ...]

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_list(rounds_pb2.Ballot(), self)


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ids of the contributions that the signer finds agreed, ascending."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: tuple[bytes, ...]

    @property
    def set_hash(self) -> bytes:
        """SHA-256 over the ids: the name of the set. 32 bytes."""
        return set_hash(self.contributions)

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_list(rounds_pb2.Confirm(), self)


def set_hash(contributions: Iterable[bytes]) -> bytes:
    """Name of a set of contribution ids, whatever their order. 32 bytes."""
    return hashlib.sha256(b"neuroswarm v1 set\0" + b"".join(sorted(contributions))).digest()


def decode_contribution(body: bytes) -> Contribution:
    """Read a contribution header; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Contribution, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_hash("architecture", m.architecture)
    check_count("fragments", len(m.fragments), limits.MAX_FRAGMENTS)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    check_count("tokens", m.tokens, limits.MAX_COUNT)
    check_text("codec", m.codec, limits.MAX_NAME_CHARS)
    check_finite("loss", m.loss)
    parts: list[FragmentPayload] = []
    for p in m.fragments:
        check_hash("payload hash", p.payload_hash)
        check_count("payload bytes", p.payload_bytes, 4 * limits.MAX_FRAGMENT_PARAMS)
        if parts and p.fragment <= parts[-1].fragment:
            raise SchemaMismatch(f"fragments out of order: {p.fragment} in a contribution")
        parts.append(FragmentPayload(p.fragment, p.payload_hash, p.payload_bytes))
    return Contribution(
        m.swarm_id,
        m.round,
        m.base_digest,
        m.architecture,
        m.codec,
        m.inner_steps,
        m.tokens,
        m.loss,
        tuple(parts),
    )


def decode_skip(body: bytes) -> Skip:
    """Read a skip; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Skip, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    return Skip(m.swarm_id, m.round, m.base_digest, m.inner_steps)


def decode_ready(body: bytes) -> Ready:
    """Read a ready; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Ready, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    return Ready(m.swarm_id, m.round, m.base_digest, m.inner_steps)


def decode_seal(body: bytes) -> Seal:
    """Read a seal; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Seal, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Seal(m.swarm_id, m.round, m.base_digest)


def decode_amendment(body: bytes) -> Amendment:
    """Read an amendment; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Amendment, body)
    check_hash("swarm id", m.swarm_id)
    check_count("bytes of rules", len(m.rules), limits.MAX_RULES_BYTES)
    return Amendment(m.swarm_id, m.rules)


def decode_ballot(body: bytes) -> Ballot:
    """Read a ballot; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Ballot, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Ballot(m.swarm_id, m.round, m.base_digest, _checked_ids(m.contributions))


def decode_confirm(body: bytes) -> Confirm:
    """Read a confirm; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Confirm, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Confirm(m.swarm_id, m.round, m.base_digest, _checked_ids(m.contributions))


def parse(message: type[M], data: bytes) -> M:
    """Parse authenticated, bounded bytes; SchemaMismatch if they are not of that message."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise SchemaMismatch(f"not a {message.DESCRIPTOR.name}: {len(data)} bytes") from error


def _encode_progress(proto: rounds_pb2.Skip | rounds_pb2.Ready, value: Skip | Ready) -> bytes:
    proto.swarm_id, proto.round, proto.base_digest, proto.inner_steps = (
        value.swarm_id,
        value.round,
        value.base_digest,
        value.inner_steps,
    )
    return proto.SerializeToString(deterministic=True)


def _encode_list(proto: rounds_pb2.Ballot | rounds_pb2.Confirm, value: Ballot | Confirm) -> bytes:
    proto.swarm_id, proto.round, proto.base_digest = value.swarm_id, value.round, value.base_digest
    proto.contributions.extend(value.contributions)
    return proto.SerializeToString(deterministic=True)


def _checked_ids(ids: Iterable[bytes]) -> tuple[bytes, ...]:
    found = tuple(ids)
    check_count("contributions", len(found), limits.MAX_SET)
    for before, after in zip((b"", *found), found, strict=False):
        check_hash("contribution id", after)
        if after <= before:
            raise SchemaMismatch("contribution ids are not strictly ascending")
    return found


def _check_round(swarm_id: bytes, round_: int, base_digest: bytes) -> None:
    check_hash("swarm id", swarm_id)
    check_hash("base digest", base_digest)
    check_count("round", round_, limits.MAX_COUNT)
