"""What a state consists of, as a donor says it and a downloader checks it.

Knows nothing of who asks; allocates nothing for the state itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from neuroswarm.diloco import applied
from neuroswarm.diloco.pieces import Layout, Shape, make_leaf
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState, state_digest
from neuroswarm.errors import MessageTooLarge, ProtocolViolation, SchemaMismatch
from neuroswarm.v1 import state_pb2
from neuroswarm.values import HASH_BYTES, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

MAX_ROUND = limits.MAX_COUNT // 2
"""Round of a state that is taken: rounds can go on from it as long as anybody lives."""


@dataclass(frozen=True, eq=False)
class StateManifest:
    """A state without its values; all of it is covered by the digest."""

    digest: bytes
    round: int
    rules: Rules
    applied: applied.Applied
    architecture: bytes
    shape: Shape
    hashes: bytes
    """SHA-256 of every piece, in order."""

    @cached_property
    def layout(self) -> Layout:
        """Where the pieces lie."""
        return Layout(self.shape)

    def hash_of(self, piece: int) -> bytes:
        """What a piece must hash to."""
        return self.hashes[HASH_BYTES * piece : HASH_BYTES * (piece + 1)]

    def complete(self, fragments: tuple[FragmentState, ...]) -> OuterState:
        """The state, once its values are there."""
        return OuterState(self.round, fragments, self.applied, self.rules, self.architecture)


def encode_manifest(state: OuterState) -> bytes:
    """The answer of a donor that holds the state. Blocks to hash it, the first time."""
    return state_pb2.StateManifest(
        is_known=True,
        round=state.round,
        digest=state.digest,
        rules=state.rules.to_bytes(),
        architecture=state.architecture,
        fragments=[
            state_pb2.FragmentManifest(name=f.name, num_params=f.num_params, pieces=f.piece_hashes)
            for f in state.fragments
        ],
        applied=[
            state_pb2.AppliedEntry(node_id=node_id, round=round_, contribution=contribution)
            for node_id, round_, contribution in applied.entries(state.applied)
        ],
    ).SerializeToString()


def read_manifest(
    data: bytes, digest: bytes, *, architecture: bytes, shape: Shape
) -> StateManifest | None:
    """Check a donor's answer against the digest asked for; None if it does not hold that state.

    Args:
        data: The answer.
        digest: Digest of the wanted state, 32 bytes.
        architecture: This node's architecture hash, 32 bytes.
        shape: This node's fragments; bounds what is taken.

    Raises:
        SchemaMismatch: it is of another architecture, or malformed.
        ProtocolViolation: it is of another digest.
    """
    message = parse(state_pb2.StateManifest, data)
    if not message.is_known:
        return None
    _check_form(message, architecture, shape)
    table = applied.from_entries(
        (_node_id(entry.node_id), entry.round, entry.contribution) for entry in message.applied
    )
    leaves = [_leaf(fragment) for fragment in message.fragments]
    if state_digest(message.round, leaves, message.rules, architecture, table) != digest:
        raise ProtocolViolation("state manifest that does not have the digest asked for")
    hashes = b"".join(fragment.pieces for fragment in message.fragments)
    rules = Rules.from_bytes(message.rules)
    return StateManifest(digest, message.round, rules, table, architecture, shape, hashes)


def _check_form(message: state_pb2.StateManifest, architecture: bytes, shape: Shape) -> None:
    if message.round > MAX_ROUND:
        raise SchemaMismatch(f"state of round {message.round} (limit {MAX_ROUND})")
    if message.architecture != architecture:
        raise SchemaMismatch("state of another architecture")
    if tuple((f.name, f.num_params) for f in message.fragments) != shape:
        raise SchemaMismatch("state with other fragments than the architecture's")
    if len(message.rules) > limits.MAX_RULES_BYTES:
        raise MessageTooLarge(
            f"rules too large: {len(message.rules)} bytes (limit {limits.MAX_RULES_BYTES})"
        )
    if len(message.applied) > limits.MAX_APPLIED:
        raise MessageTooLarge(
            f"table too long: {len(message.applied)} entries (limit {limits.MAX_APPLIED})"
        )


def _leaf(fragment: state_pb2.FragmentManifest) -> bytes:
    try:
        return make_leaf(fragment.name, fragment.num_params, fragment.pieces)
    except ValueError as error:
        raise SchemaMismatch(str(error)) from error


def _node_id(value: bytes) -> NodeId:
    try:
        return NodeId(value)
    except ValueError as error:
        raise SchemaMismatch(str(error)) from error
