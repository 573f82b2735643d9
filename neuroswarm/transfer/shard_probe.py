"""Asks those who say that they hold a shard for a few bytes of it: a claim is no copy.

Knows nothing of why it matters, nor of what the bytes should be.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError
from neuroswarm.transfer.download import Candidates
from neuroswarm.transfer.shard_sightings import ShardSightings
from neuroswarm.transfer.shard_stream import Gone, read_range
from neuroswarm.transport import Rpc
from neuroswarm.v1 import shards_pb2
from neuroswarm.values import PeerAddress

logger = logging.getLogger(__name__)

SAMPLE_BYTES = 4096
"""Of one shard, from a place that nobody can foresee: whoever holds a part of it only, or nothing,
is found out sooner or later."""

MAX_PROBED = 3
"""Holders that are asked at once."""

TIMEOUT_S = 5.0

IsRight = Callable[[int, bytes], bool]
"""(offset, bytes) -> whether these are the bytes of the shard there. May block."""


class ShardProbe:
    """Finds out whether shards are really to be had."""

    def __init__(
        self, rpc: Rpc, sightings: ShardSightings, candidates: Candidates, *, clock: Clock
    ) -> None:
        """Ask through this transport those peers that were seen to hold something."""
        self._rpc = rpc
        self._sightings = sightings
        self._candidates = candidates
        self._clock = clock
        self._random = random.Random(secrets.randbits(64))

    async def is_to_be_had(
        self, index: int, sha256: bytes, num_bytes: int, is_right: IsRight
    ) -> bool:
        """Whether a live peer gives bytes of a shard, and the right ones.

        Args:
            index: The shard's place in the corpus.
            sha256: Its name among peers.
            num_bytes: Its length.
            is_right: What holds for the bytes of one who has it.

        Cancellation: nothing is left behind.
        """
        holders = set(self._sightings.holders(index))
        live = [peer for peer in self._candidates() if peer.node_id in holders]
        asked = self._random.sample(live, min(MAX_PROBED, len(live)))
        size = min(SAMPLE_BYTES, num_bytes)
        offset = secrets.randbelow(num_bytes - size + 1)
        request = shards_pb2.BytesRequest(sha256=sha256, offset=offset, length=size)
        found = await asyncio.gather(*(self._ask(peer, index, request) for peer in asked))
        verdicts = [
            len(data) == size and await asyncio.to_thread(is_right, offset, data) for data in found
        ]
        for peer, is_held in zip(asked, verdicts, strict=True):
            if is_held:
                self._sightings.gave(peer.node_id, index)
            else:
                self._sightings.refused(peer.node_id, index, self._clock.monotonic())
        return any(verdicts)

    async def _ask(self, peer: PeerAddress, index: int, request: shards_pb2.BytesRequest) -> bytes:
        """What a peer gives; nothing where it gives none."""
        stream = self._rpc.stream(
            peer, "Shards/Bytes", request.SerializeToString(), timeout_s=TIMEOUT_S
        )
        try:
            async with aclosing(read_range(stream, peer.node_id, request.length)) as parts:
                return b"".join([part async for part in parts])
        except Gone:
            self._sightings.lost(peer.node_id, index)
        except PeerError as error:
            logger.debug("%s gives nothing of shard %d: %s", peer, index, error)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        return b""
