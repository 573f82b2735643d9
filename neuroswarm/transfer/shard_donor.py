"""Gives out the token shards that this node holds: ranges of files that are named by their hash.

To few peers at once, at a bounded rate, and only what the own manifest lists; no name and no path
comes from the network. Knows nothing of why a shard is wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol

from neuroswarm.clock import Clock
from neuroswarm.config.sections import DataConfig
from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.transfer.donor import Uplink
from neuroswarm.transfer.upload_bounds import Pace, Place, Places
from neuroswarm.transport import Rpc
from neuroswarm.v1 import shards_pb2, state_pb2
from neuroswarm.values import HASH_BYTES, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

COUNTED_ON_S = 60.0
"""How long whoever was given bytes of a shard may take it that it is here."""

READER_S = 3.0
"""How long a peer waits for other shards being read; less than its patience (`STALL_S`)."""

READ_BYTES = 256 * 1024
"""Bytes of a file that are in memory at once, for each peer that is served."""


class Shards(Protocol):
    """The shards of one corpus that this node holds."""

    corpus: bytes
    """SHA-256 of its manifest."""

    def held_bits(self) -> bytes:
        """One bit a shard, in the manifest's order."""
        ...

    def is_to_be_read(self, sha256: bytes) -> bool:
        """Whether `find` reads the whole file of a shard before it gives it. May block a little."""
        ...

    def find(self, sha256: bytes) -> Path | None:
        """The file of a shard; None if it is not here, or no longer as it was. May block."""
        ...


class ShardDonor:
    """Serves a node's shards."""

    def __init__(
        self, rpc: Rpc, shards: Shards | None, cfg: DataConfig, *, clock: Clock, uplink: Uplink
    ) -> None:
        """Register the handlers; the transport must not have started.

        Args:
            rpc: The node's transport.
            shards: What it holds; None: it has no shards.
            cfg: How many peers and how many bytes.
            clock: Measures idleness and the rate.
            uplink: Bounds what is given besides.
        """
        self.shards = shards
        """What it gives out."""
        self._clock = clock
        self._uplink = uplink
        self._places = Places(cfg.max_downloads)
        mbit = cfg.max_upload_mbit
        self._pace = None if mbit is None else Pace(mbit * 1e6 / 8, clock)
        self._given_at: dict[bytes, float] = {}
        """When bytes of a shard were given last; of shards that are here only."""
        self._reader = asyncio.Semaphore(1)
        """Taken while a whole shard is read, as nobody knows whether its bytes are still right."""
        self.bytes_given = 0
        """Of shards, since the start."""
        rpc.serve_unary("Shards/Held", self._on_held)
        rpc.serve_stream("Shards/Bytes", self._on_bytes)

    @property
    def num_downloaders(self) -> int:
        """Peers that have a place now."""
        return self._places.count(self._clock.monotonic())

    def is_counted_on(self, sha256: bytes) -> bool:
        """Whether bytes of a shard were given so lately that somebody may rely on this copy."""
        given_at = self._given_at.get(sha256, float("-inf"))
        return self._clock.monotonic() - given_at < COUNTED_ON_S

    async def _on_held(self, _caller: NodeId, data: bytes) -> bytes:
        wanted = parse(shards_pb2.HeldRequest, data).corpus
        if self.shards is None or self.shards.corpus != wanted:
            return shards_pb2.HeldReply(is_known=False).SerializeToString()
        held = self.shards.held_bits()
        return shards_pb2.HeldReply(is_known=True, held=held).SerializeToString()

    async def _on_bytes(self, caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = parse(shards_pb2.BytesRequest, data)
        if len(request.sha256) != HASH_BYTES:
            raise SchemaMismatch(f"hash of {len(request.sha256)} bytes (needs {HASH_BYTES})")
        if request.offset > limits.MAX_COUNT:
            raise SchemaMismatch(f"offset {request.offset} (limit {limits.MAX_COUNT})")
        if request.length > limits.MAX_SHARD_RANGE_BYTES:
            raise MessageTooLarge(
                f"range too long: {request.length} bytes (limit {limits.MAX_SHARD_RANGE_BYTES})"
            )
        with self._places.taken(caller, self._clock) as place, ExitStack() as stack:
            if place is None:
                yield _refuse(state_pb2.REFUSAL_BUSY)
                return
            sha256 = bytes(request.sha256)
            if not await self._is_ready(sha256):
                yield _refuse(state_pb2.REFUSAL_BUSY)
                return
            file = await asyncio.to_thread(self._open, sha256)
            if file is None:
                yield _refuse(state_pb2.REFUSAL_GONE)
                return
            stack.enter_context(file)
            end = request.offset + request.length
            for at in range(request.offset, end, READ_BYTES):
                block = await asyncio.to_thread(_read, file, at, min(end - at, READ_BYTES))
                for message in _cut(block):
                    if not await self._has_turn(place, message):
                        yield _refuse(state_pb2.REFUSAL_BUSY)
                        return
                    self.bytes_given += len(message)
                    self._given_at[sha256] = self._clock.monotonic()
                    yield message
                    place.took(len(message), self._clock.monotonic())
                if not block:
                    return

    async def _is_ready(self, sha256: bytes) -> bool:
        """Whether a shard can be opened at once; False: others are being read to the end.

        Only one is read at a time, whoever asks and goes away again meanwhile: the threads for
        such work are few, and all parts of the node share them.
        """
        shards = self.shards
        if shards is None or not await asyncio.to_thread(shards.is_to_be_read, sha256):
            return True
        try:
            async with asyncio.timeout(READER_S):
                await self._reader.acquire()
        except TimeoutError:
            return False
        reading = asyncio.get_running_loop().run_in_executor(None, shards.find, sha256)
        reading.add_done_callback(lambda _: self._reader.release())
        await asyncio.shield(reading)
        return True

    async def _has_turn(self, place: Place, message: bytes) -> bool:
        """Wait until a message may go; whether it still may then."""
        if not self._uplink.may_give(len(message)):
            return False
        waited_s = 0.0 if self._pace is None else await self._pace.take(len(message))
        waited_s += await self._uplink.take(len(message))
        place.was_held_up(waited_s, self._clock.monotonic())
        return not place.is_lost

    def _open(self, sha256: bytes) -> BinaryIO | None:
        path = None if self.shards is None else self.shards.find(sha256)
        try:
            return None if path is None else path.open("rb")
        except OSError:
            return None  # deleted since it was found


def _read(file: BinaryIO, offset: int, num_bytes: int) -> bytes:
    """Bytes from there on; fewer at the end of the file, or where the disk fails."""
    try:
        file.seek(offset)
        return file.read(num_bytes)
    except OSError:
        return b""


def _cut(block: bytes) -> Iterator[bytes]:
    for start in range(0, len(block), limits.MAX_PIECE_CHUNK_BYTES):
        part = block[start : start + limits.MAX_PIECE_CHUNK_BYTES]
        yield shards_pb2.BytesChunk(data=part).SerializeToString()


def _refuse(why: state_pb2.Refusal) -> bytes:
    return shards_pb2.BytesChunk(refusal=why).SerializeToString()
