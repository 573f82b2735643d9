"""Wires the parts that fetch and give token shards; starts nothing.

Knows who needs whom, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.checkpoint.checkpointer import INNER_BYTES_PER_PARAM, OUTER_BYTES_PER_PARAM
from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.corpus.shard_batches import ShardBatches
from neuroswarm.metering.framing import estimate_calls
from neuroswarm.metering.meter import Meter
from neuroswarm.node.carriers import Carriers
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.home import MB, Home
from neuroswarm.node.recorder import Recorder
from neuroswarm.node.replica import Replica
from neuroswarm.node.shard_keeper import ShardKeeper
from neuroswarm.node.storage import Storage
from neuroswarm.node.thrift import MeteredUplink
from neuroswarm.service import Service
from neuroswarm.training.trained_model import Progress, TrainedModel
from neuroswarm.training.trainer import Trainer
from neuroswarm.transfer.shard_crew import ShardCrew
from neuroswarm.transfer.shard_donor import ShardDonor


class ShardRoom(Service):
    """How a node comes by its shards and gives them on."""

    name = "shards"

    def __init__(
        self,
        donor: ShardDonor,
        batches: ShardBatches | None,
        crew: ShardCrew | None = None,
        keeper: ShardKeeper | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            donor: Gives shards.
            batches: Made of them; None: this node trains on something else.
            crew: Fetches them; None: nothing does.
            keeper: Decides which.
        """
        super().__init__()
        self.donor = donor
        self.batches = batches
        self.keeper = keeper
        self.crew = crew

    async def _open(self, stack: AsyncExitStack) -> None:
        for part in self._parts:
            await stack.enter_async_context(part)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return tuple(part.wait_closed() for part in self._parts)

    @property
    def _parts(self) -> list[Service]:
        return [part for part in (self.crew, self.keeper) if part is not None]

    @property
    def bytes_written(self) -> int:
        """Bytes of shards written to the disk since the start."""
        return 0 if self.batches is None else self.batches.holding.bytes_written

    def get_status(self) -> Mapping[str, object] | None:
        """The part of `/status` on shards; None without any."""
        if self.batches is None:
            return None
        holding = self.batches.holding
        own = self.keeper.get_status() if self.keeper is not None else {}
        return {
            "corpus": holding.manifest.id,
            "of": len(holding.shards),
            "held": len(holding.held),
            "in_use": len(self.batches.in_use),
            **own,
            "downloaders": self.donor.num_downloaders,
            "bytes_given_total": self.donor.bytes_given,
        }


def assemble_shards(
    config: SwarmNodeConfig,
    carriers: Carriers,
    *,
    home: Home,
    trainer: TrainedModel,
    replica: Replica,
    crowd: Crowd,
    announce: Callable[[], None],
    recorder: Recorder,
    meter: Meter,
    clock: Clock,
) -> ShardRoom:
    """The parts that serve shards, and fetch them where the data is a folder of shards."""
    found = trainer.batches if isinstance(trainer, Trainer) else None
    batches = found if isinstance(found, ShardBatches) else None
    holding = None if batches is None else batches.holding
    uplink = MeteredUplink(meter)
    donor = ShardDonor(carriers.rpc, holding, config.data, clock=clock, uplink=uplink)
    if batches is None or holding is None or holding.own is None:
        return ShardRoom(donor, batches)
    crew = ShardCrew(
        carriers.rpc,
        holding,
        len(holding.shards),
        crowd.targets,
        blame=crowd.misbehaved,
        clock=clock,
    )
    crew.may_fetch = lambda num_bytes: meter.may_spend(estimate_calls(num_bytes, 1))
    num_params = sum(replica.fragments.sizes)
    storage = Storage(
        config.resources.max_storage_mb * MB,
        [home.folder.path, home.store.folder],
        shards=holding.own,
        given_bytes=sum(map(holding.num_bytes, holding.given)),
        reserve_bytes=reckon_checkpoints(num_params, config.checkpoint.max_checkpoints),
    )
    keeper = ShardKeeper(batches, crew, storage, config.data, me=home.key.node_id, clock=clock)

    async def begin() -> None:
        await replica.begin_with_data()
        announce()

    keeper.begin = begin
    keeper.is_counted_on = donor.is_counted_on
    replica.begin_round = batches.begin_round
    recorder.note_loss = _WithTrainingLoss(trainer, keeper)
    return ShardRoom(donor, batches, crew, keeper)


def reckon_checkpoints(num_params: int, max_checkpoints: int) -> int:
    """Bytes that checkpoints take once all are there and one more is being written."""
    per_param = OUTER_BYTES_PER_PARAM + INNER_BYTES_PER_PARAM
    return per_param * num_params * (max_checkpoints + 1)


class _WithTrainingLoss:
    """Adds the mean training loss since the last time to the held-out loss."""

    def __init__(self, trainer: TrainedModel, keeper: ShardKeeper) -> None:
        self._trainer = trainer
        self._keeper = keeper
        self._before: Progress = trainer.total

    def __call__(self, held_out: float | None) -> None:
        total = self._trainer.total
        since, self._before = total.without(self._before), total
        self._keeper.note_loss(held_out, since.mean_loss if since.steps > 0 else None)
