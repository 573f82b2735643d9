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
from neuroswarm.node.device_work import make_devices, plan_devices
from neuroswarm.node.fitting import Fitting, Machine
from neuroswarm.node.home import Home
from neuroswarm.node.trainer_fit import look
from neuroswarm.node.workload import Prepared, Workload
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.devices import Devices, share_threads
from neuroswarm.training.lent import LentThread
from neuroswarm.training.threads import choose_num_threads, limit_torch
from neuroswarm.training.trained_model import TrainedModel

logger = logging.getLogger(__name__)


async def outfit(
    config: SwarmNodeConfig, workload: Workload, home: Home, clock: Clock
) -> tuple[ComputeThread, Prepared, Devices]:
    """The compute thread, what is trained on it, and the devices that take part in that.

    A machine without memory for training gets a trainer that says so (`TrainedModel.why_idle`);
    without memory for the model, one of shapes only (`TrainedModel.is_hollow`).

    Raises:
        DataError, ConfigError: as `Workload.prepare`.
    """
    planned = plan_devices(config, workload)
    num_threads = choose_num_threads(config.resources.max_cpu_threads)
    num_threads = share_threads(len(planned), planned[0], num_threads)
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
    return compute, prepared, make_devices(config, prepared, planned)


def make_fitting(
    config: SwarmNodeConfig,
    compute: ComputeThread,
    trainer: TrainedModel,
    membership: Membership,
    *,
    devices: Devices,
    clock: Clock,
) -> Fitting:
    """What watches the machine; peers are told when a rest begins or ends."""
    capacity = look(config.resources, trainer.device)
    settings = config.resources, config.guest
    machine = Machine(choose_num_threads=lambda limit: devices.share(choose_num_threads(limit)))
    fitting = Fitting(compute, trainer, capacity, settings=settings, clock=clock, machine=machine)
    fitting.describe_devices = devices.get_status
    fitting.on_change = membership.heartbeat.announce_now
    return fitting
