"""Brings the shards that a node wants, from the peers that hold them, and goes on for ever.

One shard comes from one donor at a time, range by range, straight to the disk; another donor goes
on where one stops. Knows nothing of why a shard is wanted, nor of where on the disk it goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.data.bits import pack_bits, unpack_bits
from neuroswarm.errors import DataError, PeerError, PeerUnreachable, WrongPayload
from neuroswarm.service import Service
from neuroswarm.transfer.donor_pool import Donor, DonorPool
from neuroswarm.transfer.download import Candidates
from neuroswarm.transfer.piece_crew import Blame
from neuroswarm.transfer.shard_landing import Landing, WantedShard
from neuroswarm.transfer.shard_pace import ShardPace, is_far_slower, is_next_to_nothing
from neuroswarm.transfer.shard_probe import IsRight, ShardProbe
from neuroswarm.transfer.shard_sightings import ShardSightings
from neuroswarm.transfer.shard_stream import Busy, Gone, Lie, Slow, read_range
from neuroswarm.transport import Rpc
from neuroswarm.v1 import shards_pb2
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

logger = logging.getLogger(__name__)

NUM_AT_ONCE = 3
"""Shards that are fetched at once."""

LOOK_S = 0.5
"""How often somebody without work looks for some."""

ASK_TIMEOUT_S = 5.0
RANGE_TIMEOUT_S = 600.0
BUFFER_BYTES = 256 * 1024
"""Bytes in memory before they go to the disk."""

IN_VAIN_BYTES = 64 * 1024
"""Who ends earlier than that gave nothing that its claim could be believed for."""

RATE_WINDOW_S = 5.0


class ShardCrew(Service):
    """Fetches what is in `wanted`, the first coming first."""

    name = "shard crew"

    def __init__(
        self,
        rpc: Rpc,
        landing: Landing,
        num_shards: int,
        candidates: Candidates,
        *,
        blame: Blame,
        clock: Clock,
    ) -> None:
        """Wire up.

        Args:
            rpc: The node's transport.
            landing: Where shards go.
            num_shards: Of the corpus.
            candidates: The live peers.
            blame: Told of a peer that gave what no honest peer gives.
            clock: Measures rates and rests.
        """
        super().__init__()
        self._rpc = rpc
        self._landing = landing
        self._candidates = candidates
        self._blame = blame
        self._clock = clock
        self.sightings = ShardSightings(num_shards)
        """Who holds what."""
        self.is_looking = False
        """Whether peers are to be asked what they hold."""
        self.is_urgent = False
        """Whether they are to be asked often, as nothing can be trained on before."""
        self.num_looks = 0
        """How often peers were asked so far, whoever was due."""
        self.may_fetch: Callable[[int], bool] = _always
        """Whether so many bytes more may come in."""
        self.on_landed: Callable[[int], None] = _ignore
        """Told of each shard that is whole and right."""
        self.on_disk_failure: Callable[[DataError], None] = _ignore
        """Told that the disk takes nothing."""
        self.bytes_fetched = 0
        """Of shards, since the start, wrong and unfinished ones included."""
        self.num_wrong = 0
        """Shards that had other bytes than the manifest's, since the start."""
        self._wanted: tuple[WantedShard, ...] = ()
        self._wanted_bits = 0
        """The same, one bit a shard."""
        self._under_way: dict[int, Donor] = {}
        self._sources: dict[int, set[NodeId | None]] = {}
        """Who gave the bytes that are there; None: nobody knows, as they are of a former life."""
        self._is_mixed_badly = set[int]()
        """Shards that were wrong with parts from several donors: the next time from one alone."""
        self._probe = ShardProbe(rpc, self.sightings, candidates, clock=clock)
        self._pool = DonorPool(self._holders, seed=int.from_bytes(landing.corpus[:4], "little"))
        self._came: deque[tuple[float, int]] = deque()
        self._changed = asyncio.Event()

    @property
    def wanted(self) -> Sequence[WantedShard]:
        """What is to be fetched, most urgent first."""
        return self._wanted

    def want(self, shards: Iterable[WantedShard]) -> None:
        """Fetch these from now on, the first coming first; others are left as they are."""
        self._wanted = tuple(shards)
        self._wanted_bits = pack_bits(shard.index for shard in self._wanted)
        self._changed.set()

    @property
    def under_way(self) -> frozenset[int]:
        """Shards that somebody brings now."""
        return frozenset(self._under_way)

    def mbit_per_s(self) -> float:
        """Rate of the last seconds."""
        self._note(0)
        return 8e-6 * sum(size for _, size in self._came) / RATE_WINDOW_S

    # -- life ------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        pass

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._ask_around(), *(self._fetch_shards() for _ in range(NUM_AT_ONCE)))

    async def _fetch_shards(self) -> None:
        while True:
            order = self._choose()
            if order is None:
                await self._rest()
                continue
            donor, shard = order
            donor.num_under_way += 1
            self._under_way[shard.index] = donor
            try:
                await self._fetch(donor, shard)
            finally:
                donor.num_under_way -= 1
                del self._under_way[shard.index]

    async def _rest(self) -> None:
        """Until there may be work: for a moment, or, with nothing to fetch, until there is."""
        if self._wanted:
            await self._clock.sleep(LOOK_S)
            return
        self._changed.clear()
        await self._changed.wait()

    def _choose(self) -> tuple[Donor, WantedShard] | None:
        now = self._clock.monotonic()
        for donor in self._pool.pick(now):
            given = set(unpack_bits(self.sightings.held_by(donor.node_id) & self._free))
            for shard in self._wanted if given else ():
                if shard.index in given and self.may_fetch(shard.num_bytes):
                    self._pool.asked(donor, now)
                    return donor, shard
        return None

    @property
    def _free(self) -> int:
        """What is wanted and brought by nobody, one bit a shard."""
        return self._wanted_bits & ~pack_bits(self._under_way)

    def _holders(self) -> list[PeerAddress]:
        """Live peers that can give something that is wanted, or are doing so."""
        free = self._free
        busy = {donor.node_id for donor in self._under_way.values()}
        return [
            peer
            for peer in self._candidates()
            if peer.node_id in busy or self.sightings.held_by(peer.node_id) & free
        ]

    # -- who holds what --------------------------------------------------------------

    async def _ask_around(self) -> None:
        while True:
            if self.is_looking:
                whom = self.sightings.choose(
                    self._candidates(), self._clock.monotonic(), is_urgent=self.is_urgent
                )
                await asyncio.gather(*(self._ask(peer) for peer in whom))
                self.num_looks += 1
            await self._clock.sleep(LOOK_S)

    async def _ask(self, peer: PeerAddress) -> None:
        request = shards_pb2.HeldRequest(corpus=self._landing.corpus).SerializeToString()
        try:
            data = await self._rpc.call(peer, "Shards/Held", request, timeout_s=ASK_TIMEOUT_S)
            reply = parse(shards_pb2.HeldReply, data)
        except PeerError as error:
            logger.debug("shards of %s are not known: %s", peer, error)
            return
        if len(reply.held) > limits.MAX_SHARDS // 8:
            logger.info("%s names more shards than there can be", peer)
            return
        self.sightings.note(peer.node_id, reply.held if reply.is_known else b"")

    async def is_to_be_had(self, shard: WantedShard, is_right: IsRight) -> bool:
        """Whether somebody who says that it holds a shard gives bytes of it, and right ones."""
        if not self.may_fetch(shard.num_bytes):
            return False
        return await self._probe.is_to_be_had(shard.index, shard.sha256, shard.num_bytes, is_right)

    # -- one shard -------------------------------------------------------------------

    async def _fetch(self, donor: Donor, shard: WantedShard) -> None:
        """Take what one donor gives of a shard, and judge it."""
        index = shard.index
        pace = ShardPace(self._clock.monotonic())
        try:
            at = await self._begin(donor, shard)
            while at < shard.num_bytes and self._is_wanted(index):
                at = await self._receive(donor, shard, at, pace)
            if at < shard.num_bytes:
                return
            is_right = await asyncio.to_thread(self._landing.finish, index)
        except PeerError as error:
            if isinstance(error, Slow) or pace.num_bytes < IN_VAIN_BYTES:
                self.sightings.refused(donor.node_id, index, self._clock.monotonic())
            self._judge(donor, shard, error)
            return
        except DataError as error:
            self.on_disk_failure(error)
            await self._clock.sleep(LOOK_S)
            return
        sources = self._sources.pop(index)
        if is_right and pace.num_bytes:  # wrong bytes are no measure for others
            self._pool.gave(donor, pace.num_bytes, self._clock.monotonic() - pace.began_at)
            self.sightings.gave(donor.node_id, index)
        if is_right:
            self._is_mixed_badly.discard(index)
            self.want(s for s in self._wanted if s.index != index)
            self.on_landed(index)
        else:
            self._was_wrong(donor, index, sources)

    async def _begin(self, donor: Donor, shard: WantedShard) -> int:
        """Bytes of a shard to go on from; none where it is to come from one donor alone."""
        at = await asyncio.to_thread(self._landing.received, shard.index)
        sources = self._sources.setdefault(shard.index, {None} if at else set())
        if at and shard.index in self._is_mixed_badly and sources != {donor.node_id}:
            await asyncio.to_thread(self._landing.discard, shard.index)
            sources.clear()
            at = 0
        return at

    def _was_wrong(self, donor: Donor, index: int, sources: set[NodeId | None]) -> None:
        self.num_wrong += 1
        error = WrongPayload(f"shard {index} is not the one asked for", peer=donor.node_id)
        logger.warning("%s: %s", donor.address, error)
        if sources == {donor.node_id}:
            self._blame(donor.node_id, error)
            self._pool.drop(donor)
        else:
            self._is_mixed_badly.add(index)

    def _judge(self, donor: Donor, shard: WantedShard, error: PeerError) -> None:
        now = self._clock.monotonic()
        match error:
            case Busy():
                logger.debug("%s is busy", donor.address)
                self._pool.was_busy(donor, now)
            case Slow():
                logger.info("%s is left for a faster donor: %s", donor.address, error)
                self._pool.left(donor, error.bytes_per_s, now)
            case Gone():
                logger.debug("%s does not hold shard %d any more", donor.address, shard.index)
                self.sightings.lost(donor.node_id, shard.index)
            case Lie():
                logger.warning("%s: %s", donor.address, error)
                self._blame(donor.node_id, error)
                self._pool.drop(donor)
            case _:
                logger.info("%s gives nothing of a shard: %s", donor.address, error)
                self._pool.failed(donor, now)

    def _is_wanted(self, index: int) -> bool:
        return bool(self._wanted_bits >> index & 1)

    # -- one range -------------------------------------------------------------------

    async def _receive(self, donor: Donor, shard: WantedShard, at: int, pace: ShardPace) -> int:
        """Take one range of a shard to the disk; returns where it ends.

        Raises:
            PeerError: it does not come, or wrongly; what came before is on the disk.
            DataError: the disk does not take it.
        """
        end = min(shard.num_bytes, at + limits.MAX_SHARD_RANGE_BYTES)
        request = shards_pb2.BytesRequest(sha256=shard.sha256, offset=at, length=end - at)
        stream = self._rpc.stream(
            donor.address, "Shards/Bytes", request.SerializeToString(), timeout_s=RANGE_TIMEOUT_S
        )
        buffer = bytearray()
        try:
            try:
                async with aclosing(read_range(stream, donor.node_id, end - at)) as parts:
                    async for data in parts:
                        donor.bytes_given += len(data)
                        self.bytes_fetched += len(data)
                        self._note(len(data))
                        self._sources[shard.index].add(donor.node_id)
                        buffer += data
                        if len(buffer) >= BUFFER_BYTES:
                            at = await self._write(shard.index, at, buffer)
                        pace.add(len(data))
                        self._judge_pace(donor, shard.index, pace)
            finally:
                at = await self._write(shard.index, at, buffer)
        finally:  # also where the disk refuses: the donor has places for a few only
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if at < end:
            raise PeerUnreachable("a range that ends too early", peer=donor.node_id)
        return at

    def _judge_pace(self, donor: Donor, index: int, pace: ShardPace) -> None:
        """Raises Slow where somebody else would clearly bring a shard sooner."""
        now = self._clock.monotonic()
        rate = pace.take_rate(now)
        if rate is None:
            return
        if is_far_slower(rate, self._rates_of_others(donor, index, rate, now)):
            raise Slow(f"{rate:.0f} bytes a second of shard {index}", rate, peer=donor.node_id)
        if is_next_to_nothing(rate):
            self.sightings.refused(donor.node_id, index, now)
        else:
            self.sightings.gave(donor.node_id, index)

    def _rates_of_others(
        self, donor: Donor, index: int, rate: float, now: float
    ) -> list[float | None]:
        """Of those that can give the shard; or another one, whose place next to nothing takes."""
        given = 1 << index
        if is_next_to_nothing(rate) and len(self._under_way) == NUM_AT_ONCE:
            given |= self._free
        return [
            self._pool.rate_of(peer.node_id)
            for peer in self._candidates()
            if peer.node_id != donor.node_id
            and self.sightings.held_by(peer.node_id) & given
            and self._pool.is_open(peer.node_id, now)
        ]

    async def _write(self, index: int, at: int, buffer: bytearray) -> int:
        data = bytes(buffer)
        buffer.clear()
        if data:
            await asyncio.to_thread(self._landing.write, index, at, data)
        return at + len(data)

    def _note(self, num_bytes: int) -> None:
        now = self._clock.monotonic()
        self._came.append((now, num_bytes))
        while self._came[0][0] < now - RATE_WINDOW_S:
            self._came.popleft()


def _always(_num_bytes: int) -> bool:
    return True


def _ignore(_what: object) -> None:
    pass
