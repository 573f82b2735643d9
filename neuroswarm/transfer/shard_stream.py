"""Reads what a donor sends of a shard, without memory or patience for more.

Knows nothing of what becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from neuroswarm.errors import PeerUnreachable, ProtocolViolation
from neuroswarm.transfer.piece_crew import STALL_BYTES, STALL_S
from neuroswarm.v1 import shards_pb2, state_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse


class Busy(PeerUnreachable):
    """The donor serves as many as it wants to."""


class Slow(PeerUnreachable):
    """The donor gives so little that another one is asked instead."""

    def __init__(self, message: str, bytes_per_s: float, *, peer: NodeId) -> None:
        super().__init__(message, peer=peer)
        self.bytes_per_s = bytes_per_s


class Gone(PeerUnreachable):
    """The donor does not hold the shard."""


class Lie(ProtocolViolation):
    """An authenticated answer that no honest donor gives; not a refusal."""


async def read_range(
    stream: AsyncIterator[bytes], donor: NodeId, num_bytes: int
) -> AsyncGenerator[bytes, None]:
    """The data of a range as it comes, until all of it is there or the stream ends before.

    Args:
        stream: Serialized `BytesChunk` messages.
        donor: Whose they are.
        num_bytes: Length of the range.

    Raises:
        PeerUnreachable: next to nothing comes; `Busy` and `Gone`: the donor says why it gives
            nothing.
        Lie: it gives what no honest donor gives.
    """
    loop = asyncio.get_running_loop()
    until, fresh, left = loop.time() + STALL_S, 0, num_bytes
    while left:
        try:
            async with asyncio.timeout_at(until):
                message = await anext(stream, None)
        except TimeoutError:
            raise PeerUnreachable(f"next to nothing for {STALL_S:g} s", peer=donor) from None
        if message is None:
            return
        data = _read_chunk(message, donor, left)
        left, fresh = left - len(data), fresh + len(data)
        if fresh >= STALL_BYTES:
            until, fresh = loop.time() + STALL_S, 0
        yield data


def _read_chunk(message: bytes, donor: NodeId, num_left: int) -> bytes:
    if len(message) > limits.MAX_CHUNK_BYTES:
        raise Lie(f"part of a shard: {len(message)} bytes", peer=donor)
    try:
        chunk = parse(shards_pb2.BytesChunk, message)
    except ProtocolViolation as error:
        raise Lie(str(error), peer=donor) from error
    if chunk.refusal == state_pb2.REFUSAL_BUSY:
        raise Busy("busy", peer=donor)
    if chunk.refusal:
        raise Gone("gone", peer=donor)
    if not chunk.data or len(chunk.data) > num_left:
        raise Lie("a range longer than asked for, or an empty part", peer=donor)
    return chunk.data
