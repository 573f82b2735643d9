"""Donors, honest and other, and one who downloads from them, on a network in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from google.protobuf.message import DecodeError

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.pieces import PIECE_BYTES, Layout, Shape, shape_of
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import PeerError
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import ARCHITECTURE, Speaker
from neuroswarm.transfer.donor import StateDonor
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.v1 import state_pb2
from neuroswarm.values import NodeId, PeerAddress

SHAPE = shape_of(("large", "empty", "odd", "small"), (400_001, 0, PIECE_BYTES // 8 + 1, 5))
"""Pieces of every kind: whole, across parameters and momentum, short, none at all."""

ASKER = Speaker("asker")
MANIFEST, PIECE = "State/Manifest", "State/Piece"


def make_state(round_: int = 7, seed: int = 0, shape: Shape = SHAPE) -> OuterState:
    source = torch.Generator().manual_seed(seed)
    fragments = tuple(
        FragmentState(
            name, torch.randn(size, generator=source), torch.randn(size, generator=source)
        )
        for name, size in shape
    )
    table = {ASKER.node_id: ((6, b"i" * 32),), NodeId(b"d" * 20): ((5, b"j" * 32), (6, b"k" * 32))}
    return OuterState(round_, fragments, table, Rules(codec_block=16), ARCHITECTURE)


STATE = make_state()
LAYOUT = Layout(SHAPE)


@dataclass(eq=False)
class Scene:
    """One network; every piece message that reaches the asker is counted by its donor."""

    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    folder: Path | None = None
    blamed: list[tuple[NodeId, PeerError]] = field(default_factory=list)
    clock: Clock = field(default_factory=SystemClock)
    requests: list[tuple[NodeId, int, int]] = field(default_factory=list)
    """Pieces asked for: of whom, which, from which offset on."""
    bytes_by: Counter[NodeId] = field(default_factory=Counter)
    addresses: list[PeerAddress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network.drop(when=self._watch)

    def _watch(self, passage: Passage) -> bool:
        if passage.method == PIECE and passage.is_reply:
            with suppress(DecodeError):  # garbage is counted as nothing
                data = state_pb2.PieceChunk.FromString(passage.data).data
                self.bytes_by[NodeId(bytes(passage.source))] += len(data)
        elif passage.method == PIECE:
            request = state_pb2.PieceRequest.FromString(passage.data)
            target = NodeId(bytes(passage.target))
            self.requests.append((target, request.piece, request.offset))
        return False

    async def donor(
        self,
        name: str,
        *states: OuterState,
        clock: Clock | None = None,
        held: Callable[[], Iterable[OuterState]] | None = None,
        **settings: float,
    ) -> StateDonor:
        """An honest donor of these states."""
        rpc = self.network.rpc(Speaker(name).node_id)
        donor = StateDonor(
            rpc,
            held or (lambda: states),
            RoundConfig.model_validate(settings),
            clock=clock or self.clock,
        )
        await rpc.start()
        self.addresses.append(rpc.address)
        return donor

    async def liar(
        self,
        name: str,
        state: OuterState = STATE,
        *,
        manifest: Callable[[state_pb2.StateManifest], None] = lambda _: None,
        chunks: Callable[[int, list[bytes]], list[bytes]] = lambda _, messages: messages,
    ) -> MemoryRpc:
        """A donor that changes its manifest, or the messages of its pieces."""
        honest_rpc = self.network.rpc(Speaker(f"behind {name}").node_id)
        StateDonor(honest_rpc, lambda: (state,), RoundConfig(), clock=self.clock)
        rpc = self.network.rpc(Speaker(name).node_id)

        async def lie_in_manifest(_caller: NodeId, data: bytes) -> bytes:
            reply = await rpc.call(honest_rpc.address, MANIFEST, data, timeout_s=5)
            message = state_pb2.StateManifest.FromString(reply)
            manifest(message)
            return message.SerializeToString()

        async def lie_in_piece(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
            index = state_pb2.PieceRequest.FromString(data).piece
            stream = rpc.stream(honest_rpc.address, PIECE, data, timeout_s=5)
            for message in chunks(index, [message async for message in stream]):
                yield message

        rpc.serve_unary(MANIFEST, lie_in_manifest)
        rpc.serve_stream(PIECE, lie_in_piece)
        for end in (honest_rpc, rpc):
            await end.start()
        self.addresses.append(rpc.address)
        return rpc

    async def downloader(
        self,
        name: str = "asker",
        *,
        architecture: bytes = ARCHITECTURE,
        shape: Shape = SHAPE,
    ) -> StateDownloader:
        rpc = self.network.rpc(Speaker(name).node_id)
        downloader = StateDownloader(
            rpc,
            architecture,
            shape,
            folder=self.folder,
            blame=lambda peer, error: self.blamed.append((peer, error)),
            clock=self.clock,
        )
        await rpc.start()
        return downloader

    async def download(self, digest: bytes = STATE.digest) -> OuterState:
        return await (await self.downloader()).fetch(digest, lambda: self.addresses)

    def fetched_share(self) -> float:
        """Bytes of pieces that went over the network, in states."""
        members = {address.node_id for address in self.addresses}
        return sum(self.bytes_by[m] for m in members) / LAYOUT.num_bytes


def node(name: str) -> NodeId:
    return Speaker(name).node_id
