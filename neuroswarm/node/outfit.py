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
from neuroswarm.node.workload import Workload
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.threads import choose_num_threads, limit_torch
from neuroswarm.training.trainer import Trainer

logger = logging.getLogger(__name__)


async def make_trainer(
    config: SwarmNodeConfig, workload: Workload, home: Home, clock: Clock
) -> tuple[ComputeThread, Trainer]:
    """The compute thread, and the trainer that belongs to it.

    A machine without memory for training gets a trainer that says so (`Trainer.why_idle`);
    without memory for the model, one of shapes only (`Trainer.is_hollow`).

    Raises:
        DataError, ConfigError: as `Workload.make_trainer`.
    """
    num_threads = choose_num_threads(config.resources.max_cpu_threads)
    limit_torch(num_threads)
    compute = ComputeThread(num_threads=num_threads, clock=clock)
    me = home.key.node_id
    try:
        trainer = await asyncio.to_thread(workload.make_trainer, config, me, clock)
    except DoesNotFit as error:
        trainer = await asyncio.to_thread(workload.make_hollow_trainer, config, me, clock)
        trainer.why_idle = str(error)
    if trainer.why_idle:
        logger.warning("this node does not train: %s", trainer.why_idle)
    return compute, trainer


def make_fitting(
    config: SwarmNodeConfig,
    compute: ComputeThread,
    trainer: Trainer,
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
