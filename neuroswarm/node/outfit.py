"""Makes what computes at a node, as large as the machine bears, and what watches over it.

Starts nothing.
"""

from __future__ import annotations

import asyncio
import logging

from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import DoesNotFit
from neuroswarm.node.assembly import Membership
from neuroswarm.node.fitting import Fitting
from neuroswarm.node.home import Home
from neuroswarm.node.trainer_fit import look
from neuroswarm.node.workload import Prepared, Workload
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.lent import LentThread
from neuroswarm.training.threads import choose_num_threads, limit_torch
from neuroswarm.training.trained_model import TrainedModel

logger = logging.getLogger(__name__)


async def outfit(
    config: SwarmNodeConfig, workload: Workload, home: Home, clock: Clock
) -> tuple[ComputeThread, Prepared]:
    """The compute thread, and what is trained on it.

    A machine without memory for training gets a trainer that says so (`TrainedModel.why_idle`);
    without memory for the model, one of shapes only (`TrainedModel.is_hollow`).

    Raises:
        DataError, ConfigError: as `Workload.prepare`.
    """
    num_threads = choose_num_threads(config.resources.max_cpu_threads)
    if not workload.has_own_loop:  # how many threads its torch takes is that loop's matter
        limit_torch(num_threads)
    kind = LentThread if workload.has_own_loop else ComputeThread
    compute = kind(num_threads=num_threads, clock=clock)
    fetched = home.folder.shards_path
    try:
        prepared = await asyncio.to_thread(workload.prepare, config, clock, fetched=fetched)
    except DoesNotFit as error:
        prepared = await asyncio.to_thread(workload.prepare_hollow, config, clock)
        prepared.trainer.why_idle = str(error)
    if prepared.trainer.why_idle:
        logger.warning("this node does not train: %s", prepared.trainer.why_idle)
    return compute, prepared


def make_fitting(
    config: SwarmNodeConfig,
    compute: ComputeThread,
    trainer: TrainedModel,
    membership: Membership,
    *,
    clock: Clock,
) -> Fitting:
    """What watches the machine; peers are told when a rest begins or ends."""
    capacity = look(config.resources, trainer.device)
    settings = config.resources, config.guest
    fitting = Fitting(compute, trainer, capacity, settings=settings, clock=clock)
    fitting.on_change = membership.heartbeat.announce_now
    return fitting
