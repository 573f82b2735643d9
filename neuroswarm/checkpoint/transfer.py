"""Download of an outer state from a peer, checked fragment by fragment against its digest.

Knows nothing of why a state is wanted or what becomes of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import torch
from torch import Tensor

from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState, fragment_leaf, state_digest
from neuroswarm.errors import MessageTooLarge, PeerUnreachable, ProtocolViolation, SchemaMismatch
from neuroswarm.transport import Rpc
from neuroswarm.v1 import envelope_pb2, state_pb2
from neuroswarm.values import HASH_BYTES, NodeId, PeerAddress, short
from neuroswarm.wire import limits
from neuroswarm.wire.chunks import receive_chunks
from neuroswarm.wire.messages import parse

ASK_TIMEOUT_S = 10.0
STALL_S = 5.0
TRANSFER_TIMEOUT_S = 24 * 3600.0
MAX_ROUND = limits.MAX_COUNT // 2
"""Round of a state that is taken: rounds can go on from it as long as anybody lives."""

BYTES_PER_PARAM = 8
"""A float32 parameter and its float32 momentum."""

Shape = tuple[tuple[str, int], ...]
"""Name and number of parameters of each fragment of the architecture, in order."""


class StateDonor:
    """Serves the outer states that this node holds."""

    def __init__(self, rpc: Rpc, states: Callable[[], Iterable[OuterState]]) -> None:
        """Register the handlers; the transport must not have started.

        Args:
            rpc: The node's transport.
            states: The states held now, newest first.
        """
        self._states = states
        rpc.serve_unary("State/Manifest", self._on_manifest)
        rpc.serve_stream("State/Fragment", self._on_fragment)

    async def _on_manifest(self, _caller: NodeId, data: bytes) -> bytes:
        wanted = parse(state_pb2.ManifestRequest, data).digest
        state = next((s for s in self._states() if wanted in (b"", s.digest)), None)
        if state is None:
            return state_pb2.StateManifest(is_known=False).SerializeToString()
        return (await asyncio.to_thread(_manifest, state)).SerializeToString()

    async def _on_fragment(self, _caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = parse(state_pb2.FragmentRequest, data)
        state = next((s for s in self._states() if s.digest == request.digest), None)
        if state is None or request.fragment >= len(state.fragments):
            raise ProtocolViolation(f"state {short(request.digest)} not held here")
        fragment = state.fragments[request.fragment]
        size = BYTES_PER_PARAM * fragment.num_params
        for start in range(request.offset, size, limits.MAX_CHUNK_BYTES):
            piece = _bytes_of(fragment, start, min(start + limits.MAX_CHUNK_BYTES, size))
            yield envelope_pb2.Chunk(data=piece).SerializeToString()


async def download_state(
    rpc: Rpc, source: PeerAddress, digest: bytes, *, architecture: bytes, shape: Shape
) -> OuterState:
    """Download the outer state with a digest from one peer.

    Args:
        rpc: The node's transport.
        source: The donor.
        digest: Digest of the wanted state, 32 bytes.
        architecture: This node's architecture hash, 32 bytes.
        shape: This node's fragments; bounds what is received.

    Returns:
        A state whose digest is `digest`.

    Raises:
        PeerUnreachable: the donor does not answer or holds no such state any more.
        ProtocolViolation: what it sends is not that state, or of another architecture.

    Cancellation: what was received is dropped.
    """
    manifest = await _ask_manifest(rpc, source, digest)
    if not manifest.is_known:
        raise PeerUnreachable(f"state {short(digest)} is gone at {source}", peer=source.node_id)
    rules, table = _check_manifest(manifest, digest, architecture, shape)
    fragments = []
    for index, (name, num_params) in enumerate(shape):
        fragment = await _download_fragment(rpc, source, digest, index, name, num_params)
        leaf = await asyncio.to_thread(fragment_leaf, fragment)
        if leaf != manifest.fragments[index].leaf:
            raise ProtocolViolation(f"fragment {name} is not the one promised", peer=source.node_id)
        fragments.append(fragment)
    return OuterState(manifest.round, tuple(fragments), table, rules, architecture)


async def _ask_manifest(rpc: Rpc, source: PeerAddress, digest: bytes) -> state_pb2.StateManifest:
    request = state_pb2.ManifestRequest(digest=digest).SerializeToString()
    data = await rpc.call(source, "State/Manifest", request, timeout_s=ASK_TIMEOUT_S)
    return parse(state_pb2.StateManifest, data)


def _check_manifest(
    manifest: state_pb2.StateManifest, digest: bytes, architecture: bytes, shape: Shape
) -> tuple[Rules, applied.Applied]:
    if manifest.round > MAX_ROUND:
        raise SchemaMismatch(f"state of round {manifest.round} (limit {MAX_ROUND})")
    if manifest.architecture != architecture:
        raise SchemaMismatch("state of another architecture")
    found = tuple((f.name, f.num_params) for f in manifest.fragments)
    if found != shape:
        raise SchemaMismatch("state with other fragments than the architecture's")
    leaves = [f.leaf for f in manifest.fragments]
    if any(len(leaf) != HASH_BYTES for leaf in leaves):
        raise SchemaMismatch("state manifest with a leaf of the wrong size")
    if len(manifest.rules) > limits.MAX_RULES_BYTES:
        raise MessageTooLarge(
            f"rules too large: {len(manifest.rules)} bytes (limit {limits.MAX_RULES_BYTES})"
        )
    table = applied.from_entries(
        (_node_id(entry.node_id), entry.round, entry.contribution) for entry in manifest.applied
    )
    if state_digest(manifest.round, leaves, manifest.rules, architecture, table) != digest:
        raise ProtocolViolation("state manifest that does not have the digest asked for")
    return Rules.from_bytes(manifest.rules), table


def _node_id(value: bytes) -> NodeId:
    try:
        return NodeId(value)
    except ValueError as error:
        raise SchemaMismatch(str(error)) from error


async def _download_fragment(
    rpc: Rpc, source: PeerAddress, digest: bytes, index: int, name: str, num_params: int
) -> FragmentState:
    size = BYTES_PER_PARAM * num_params
    received = bytearray()
    request = state_pb2.FragmentRequest(digest=digest, fragment=index).SerializeToString()
    stream = rpc.stream(source, "State/Fragment", request, timeout_s=TRANSFER_TIMEOUT_S)
    await receive_chunks(stream, received, size, source=source.node_id, stall_s=STALL_S)
    if len(received) != size:
        raise ProtocolViolation(f"fragment {name} of the wrong size", peer=source.node_id)
    values = torch.frombuffer(received, dtype=torch.float32) if size else torch.empty(0)
    if not bool(torch.isfinite(values).all()):
        raise ProtocolViolation(f"fragment {name} is not finite", peer=source.node_id)
    return FragmentState(name, values[:num_params].clone(), values[num_params:].clone())


def _manifest(state: OuterState) -> state_pb2.StateManifest:
    return state_pb2.StateManifest(
        is_known=True,
        round=state.round,
        digest=state.digest,
        rules=state.rules.to_bytes(),
        architecture=state.architecture,
        fragments=[
            state_pb2.FragmentManifest(name=f.name, num_params=f.num_params, leaf=f.leaf)
            for f in state.fragments
        ],
        applied=[
            state_pb2.AppliedEntry(node_id=node_id, round=round_, contribution=contribution)
            for node_id, round_, contribution in applied.entries(state.applied)
        ],
    )


def _bytes_of(fragment: FragmentState, start: int, end: int) -> bytes:
    """Bytes [start, end) of parameters followed by momentum, little-endian float32."""
    half = 4 * fragment.num_params
    spans = (
        (fragment.params, start, min(end, half)),
        (fragment.momentum, start - half, end - half),
    )
    return b"".join(itertools.starmap(_slice, spans))


def _slice(values: Tensor, start: int, end: int) -> bytes:
    raw = values.numpy().astype("<f4", copy=False).view("u1")
    return raw[max(start, 0) : max(end, 0)].tobytes()


def shape_of(names: Sequence[str], sizes: Sequence[int]) -> Shape:
    """The architecture's fragments as `download_state` wants them."""
    return tuple(zip(names, sizes, strict=True))
