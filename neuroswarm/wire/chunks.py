"""Receiving bytes that come as a stream of chunks, without memory or patience for more.

Refuses to know what the bytes are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from neuroswarm.errors import MessageTooLarge, PeerUnreachable
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse


async def receive_chunks(
    stream: AsyncIterator[bytes],
    received: bytearray,
    size: int,
    *,
    source: NodeId,
    stall_s: float,
) -> None:
    """Append what a stream brings until `size` bytes are there or it ends before.

    Args:
        stream: Serialized `Chunk` messages.
        received: What is there already; grows to at most `size` bytes.
        size: Bytes expected in all.
        source: Whose stream it is.
        stall_s: Longest time for the next `limits.MAX_CHUNK_BYTES`: crumbs are no progress.

    Raises:
        PeerUnreachable: too little came in that time; what came before stays in `received`.
        MessageTooLarge: it is longer than `size`, or has empty pieces.

    Cancellation: what was received stays in `received`.
    """
    while len(received) < size:
        goal = min(size, len(received) + limits.MAX_CHUNK_BYTES)
        try:
            async with asyncio.timeout(stall_s):
                while len(received) < goal:
                    message = await anext(stream, None)
                    if message is None:
                        return
                    _append(message, received, size)
        except TimeoutError as error:
            raise PeerUnreachable(f"no progress for {stall_s} s", peer=source) from error


def _append(message: bytes, received: bytearray, size: int) -> None:
    data = parse(envelope_pb2.Chunk, message).data
    if not data or len(received) + len(data) > size:
        raise MessageTooLarge(f"stream longer than promised ({size} bytes), or an empty piece")
    received += data
