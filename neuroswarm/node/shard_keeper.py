"""Decides, again and again, which shards a node has, fetches, uses and lets go of.

Everything that takes long is done beside the event loop, and nothing of it reaches the training:
it goes on with the shards in use until others are ready, and changes to them between two rounds.
Knows nothing of how shards come (`transfer.shard_crew`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from neuroswarm.checkpoint.complaint import Complaint
from neuroswarm.checkpoint.small_file import SmallFile
from neuroswarm.clock import Clock
from neuroswarm.config.sections import DataConfig
from neuroswarm.corpus.shard_batches import ShardBatches
from neuroswarm.data.assignment import Room, plan_shards, rank_shards
from neuroswarm.data.bits import unpack_bits
from neuroswarm.data.plateau import RoundLoss, has_plateaued
from neuroswarm.errors import CheckpointError, DataError
from neuroswarm.node.storage import Storage
from neuroswarm.service import Service
from neuroswarm.transfer.shard_crew import ShardCrew
from neuroswarm.transfer.shard_landing import WantedShard
from neuroswarm.values import NodeId, counted

logger = logging.getLogger(__name__)

LOOK_S = 1.0
MEASURE_S = 10.0
"""How often the disk is looked at."""

PROBE_S = 20.0
"""Pause, at the most, after peers were asked in vain for what is to go and what is to come."""

MANY_HOLDERS = 8
"""With so many other copies nobody waits for whoever was given bytes: asking for a few of every
shard again and again would else keep a node from ever changing its shards."""

MAX_ROTATION_BYTES = 256


class ShardKeeper(Service):
    """Keeps a node's shards."""

    name = "shard keeper"

    def __init__(
        self,
        batches: ShardBatches,
        crew: ShardCrew,
        storage: Storage,
        cfg: DataConfig,
        *,
        me: NodeId,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._batches = batches
        self._holding = batches.holding
        self._crew = crew
        self._storage = storage
        self._cfg = cfg
        self._me = me
        self._clock = clock
        self.begin: Callable[[], Awaitable[None]] = _nothing
        """Called once there is something to train on: uses it between two steps."""
        self.is_counted_on: Callable[[bytes], bool] = _nobody
        """Whether peers may take it that this node keeps the shard of that hash."""
        self.rotation = 0
        """How often this node has changed its shards for others."""
        self._file = SmallFile(storage.shards / "rotation.json", MAX_ROTATION_BYTES)
        self._corpus = self._holding.sizes
        self._usable = frozenset(range(len(self._corpus))) - batches.too_short
        self._order: tuple[int, list[int]] | None = None
        self._history: list[RoundLoss] = []
        self._complaint = Complaint(logger, "training goes on; will try again")
        self._measured_at = float("-inf")
        self._probes_at = float("-inf")
        self._leaving: int | None = None
        """A fetched shard that goes once no batch is made of it any more."""
        self._prepared = batches.in_use
        self._room = Room(0, 0)
        self._missing: list[int] = []
        self._unwanted = frozenset[int]()
        """Shards of which a part is here that is not to become whole; it is about to go."""
        self._looking_since = 0
        self._is_told_of_room = False
        self._changed = asyncio.Event()
        crew.on_landed = self._on_landed
        crew.on_disk_failure = self._on_disk_failure

    def note_loss(self, held_out: float | None, training: float | None) -> None:
        """A round is over; where the loss falls no more, change the shards for others."""
        self._history.append(RoundLoss(held_out, training))
        del self._history[: -2 * self._cfg.plateau_rounds]
        if not has_plateaued(
            self._history, window=self._cfg.plateau_rounds, min_gain=self._cfg.plateau_gain
        ):
            return
        believable = self._believable()
        if believable.intersection(self._missing) or believable <= self._holding.held:
            return  # the last change is not over, or there is nothing to change to
        self.rotation += 1
        self._history.clear()
        logger.info("the loss falls no more: changing shards (rotation %d)", self.rotation)
        self._changed.set()

    def get_status(self) -> Mapping[str, object]:
        """The part of `/status` on shards, as JSON values."""
        holding, crew = self._holding, self._crew
        return {
            "corpus": holding.manifest.id,
            "folder": str(holding.own),
            "of": len(holding.shards),
            "held": len(holding.held),
            "given": len(holding.given),
            "in_use": len(self._batches.in_use),
            "wanted": len(self._missing),
            "fetching": sorted(holding.shards[i].name for i in crew.under_way),
            "held_bytes": self._num_bytes(holding.held),
            "room_bytes": self._room.num_bytes,
            "other_bytes": self._storage.other_bytes,
            "rotation": self.rotation,
            "holders": crew.sightings.num_holders,
            "mbit_per_s": round(crew.mbit_per_s(), 2),
            "bytes_fetched_total": crew.bytes_fetched,
            "wrong_total": crew.num_wrong,
            "is_failing": self._complaint.is_open,
        }

    # -- life ------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            data = await asyncio.to_thread(self._file.read)
            self.rotation = 0 if data is None else _read_rotation(data)
        except CheckpointError as error:
            logger.warning("%s: taken for 0", error)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._keep(),)

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._look()
            except (DataError, CheckpointError) as error:
                self._on_disk_failure(error)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _on_landed(self, index: int) -> None:
        self._complaint.worked("writing shards")
        logger.info("fetched %s", self._holding.shards[index].name)
        self._changed.set()

    def _on_disk_failure(self, error: Exception) -> None:
        self._complaint.failed(error, self._clock.monotonic())
        self._crew.want(())

    async def _look(self) -> None:
        await self._let_go()
        await self._use_what_is_here()
        if self._complaint.is_pausing(self._clock.monotonic()):
            return
        unfinished = await asyncio.to_thread(self._holding.unfinished)
        await self._measure(unfinished)
        order = await self._rank()
        fetched = self._holding.fetched
        wanted, ideal = await asyncio.to_thread(self._plan_twice, order, fetched, unfinished)
        if self._crew.is_looking is fetched.issuperset(ideal):
            self._crew.is_looking = not self._crew.is_looking
            self._looking_since = self._crew.num_looks
        self._crew.is_urgent = not self._batches.has_data
        # Others may have landed since: what is here must not be fetched again.
        self._missing = [index for index in wanted if index not in self._holding.fetched]
        self._unwanted = unfinished.union(self._crew.under_way).difference(wanted)
        self._crew.want(map(self._name, self._fitting()))
        for index in self._unwanted.difference(self._crew.under_way):
            await asyncio.to_thread(self._holding.discard, index)
        self._say_if_there_is_no_room(order)
        await self._choose_who_leaves(wanted, order)

    def _plan_twice(
        self, order: list[int], fetched: frozenset[int], unfinished: frozenset[int]
    ) -> tuple[list[int], list[int]]:
        """The shards to have of those that can be had, and of all.

        What nobody gives although somebody says to have it takes the room of nothing else, unless
        there is nothing to train on yet, or a part of it is here already.
        """
        claimed = self._usable.intersection(unpack_bits(self._crew.sightings.obtainable))
        can_be_had = claimed & unfinished | self._believable()
        if not self._batches.has_data:
            can_be_had |= claimed
        return self._plan(order, fetched | can_be_had), self._plan(order, self._usable)

    def _plan(self, order: list[int], obtainable: Collection[int]) -> list[int]:
        return plan_shards(
            self._corpus,
            order,
            given=self._holding.given,
            obtainable=obtainable,
            room=self._room,
        )

    async def _measure(self, unfinished: Collection[int]) -> None:
        """Look at the disk, if that is long ago, and reckon the room for shards."""
        now = self._clock.monotonic()
        if now - self._measured_at >= MEASURE_S:
            await asyncio.to_thread(self._storage.measure)
            self._measured_at = now
        received = [await asyncio.to_thread(self._holding.received, i) for i in unfinished]
        self._room = self._storage.room(self._num_bytes(self._holding.fetched) + sum(received))

    async def _rank(self) -> list[int]:
        """The training shards in this node's order; once for each rotation."""
        if self._order is None or self._order[0] != self.rotation:
            holding, rotation = self._holding, self.rotation
            hashes = [holding.hash_of(index) for index in range(holding.num_train)]
            order = await asyncio.to_thread(rank_shards, hashes, self._me, rotation)
            if self._order is not None:
                data = json.dumps({"rotation": rotation}).encode()
                await asyncio.to_thread(self._file.write, data)
            self._order = (rotation, order)
        return self._order[1]

    def _believable(self) -> frozenset[int]:
        """What peers hold, without claims that they do not keep."""
        bits = self._crew.sightings.believable(self._clock.monotonic())
        return self._usable.intersection(unpack_bits(bits))

    # -- what comes ------------------------------------------------------------------

    def _fitting(self) -> list[int]:
        """What can be fetched now, beside the shards that are here and may have to go first."""
        # Before there is anything to train on, space kept for checkpoints may be used for it.
        room = self._room.num_bytes if self._batches.has_data else self._room.at_most
        room -= self._num_bytes(self._holding.fetched | self._unwanted)
        fitting = []
        for index in self._missing:
            size = self._corpus[index].num_bytes
            if size > room:
                break
            fitting.append(index)
            room -= size
        return fitting

    def _name(self, index: int) -> WantedShard:
        return WantedShard(index, self._hash(index), self._corpus[index].num_bytes)

    def _hash(self, index: int) -> bytes:
        return self._holding.hash_of(index)

    async def _use_what_is_here(self) -> None:
        """Have batches made of the shards that are here, from the next round on; or at once."""
        here = self._holding.held - self._batches.too_short - {self._leaving}
        if here == self._prepared or not self._batches.is_enough(here):
            return
        await asyncio.to_thread(self._batches.prepare, here)
        self._prepared = here
        if not self._batches.has_data:
            await self.begin()
            logger.info("training begins on %s", counted(len(here), "shard"))

    def _say_if_there_is_no_room(self, order: list[int]) -> None:
        if self._batches.has_data or self._is_told_of_room:
            return
        needed = plan_shards(
            self._corpus,
            order,
            given=self._holding.given,
            obtainable=self._usable,
            room=Room(0, sum(shard.num_bytes for shard in self._corpus)),
        )
        if self._num_bytes(needed) > self._room.at_most:
            self._is_told_of_room = True
            logger.warning(
                "no room for a shard to train on and a held-out one: they take %.1f MB, and %.1f "
                "of %.0f MB (resources.max_storage_mb) are left, or of the disk",
                self._num_bytes(needed) / 1e6,
                max(0, self._room.at_most) / 1e6,
                self._storage.limit_bytes / 1e6,
            )

    # -- what goes -------------------------------------------------------------------

    async def _choose_who_leaves(self, wanted: list[int], order: list[int]) -> None:
        """One shard at a time goes, if there is too little room, or for one that is wanted.

        For the sake of another one a shard goes only when somebody has just given bytes of both:
        of this one, so that it is not the last copy, and of that one, so that it is worth it.
        """
        if self._leaving is not None or self._believable().intersection(self._crew.under_way):
            return
        fetched = self._holding.fetched
        is_over = self._num_bytes(fetched) > self._room.num_bytes
        if not is_over and (not self._missing or self._fitting()):
            return
        rank = {index: position for position, index in enumerate(order)}
        going = [
            index
            for index in sorted(fetched.difference(wanted), key=lambda i: -rank.get(i, -1))
            if self._batches.is_enough(self._holding.held - {index})
        ]
        index = next(iter(going), None) if is_over else await self._choose_copied(going)
        if index is not None:
            self._leaving = index
            self._holding.withdraw(index)
            self._changed.set()

    async def _choose_copied(self, going: list[int]) -> int | None:
        """The first of these of which there is another copy; None unless it makes room now."""
        now = self._clock.monotonic()
        # Until peers were asked again they may be gone, and what they held with them.
        is_news = self._crew.num_looks > self._looking_since + 1
        if not is_news or now < self._probes_at:
            return None
        claimed = self._believable()
        possible = [i for i in going if i in claimed and not self._is_relied_on(i)]
        if not possible:
            return None
        index, coming = self._name(possible[0]), self._name(self._missing[0])
        is_right = partial(self._holding.has_bytes, index.index)
        if (
            await self._crew.is_to_be_had(coming, _whatever)
            and await self._crew.is_to_be_had(index, is_right)
            and not self._is_relied_on(index.index)
        ):
            return index.index
        # Two nodes that want to let go of one shard are not to ask each other in step for ever.
        self._probes_at = self._clock.monotonic() + random.uniform(PROBE_S / 2, PROBE_S)
        return None

    def _is_relied_on(self, index: int) -> bool:
        """Whether one of the few others that have a shard may let go of it as it is here."""
        num_others = len(self._crew.sightings.holders(index))
        return num_others < MANY_HOLDERS and self.is_counted_on(self._hash(index))

    async def _let_go(self) -> None:
        """Delete the shard that leaves, once nothing is made of it any more."""
        leaving = self._leaving
        if leaving is not None and leaving not in self._batches.in_use:
            self._leaving = None
            await asyncio.to_thread(self._holding.remove, leaving)
            logger.info("let go of %s", self._holding.shards[leaving].name)

    def _num_bytes(self, indices: Collection[int]) -> int:
        return sum(self._corpus[index].num_bytes for index in indices)


def _read_rotation(data: bytes) -> int:
    try:
        rotation = json.loads(data)["rotation"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"rotation.json is damaged: {error}") from error
    if not isinstance(rotation, int) or not 0 <= rotation < 2**53:
        raise CheckpointError(f"rotation.json is damaged: rotation {rotation!r}")
    return rotation


async def _nothing() -> None:
    pass


def _nobody(_sha256: bytes) -> bool:
    return False


def _whatever(_offset: int, _data: bytes) -> bool:
    """Nobody here knows the bytes of a shard that is not here."""
    return True
