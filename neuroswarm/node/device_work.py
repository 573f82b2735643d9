"""Makes what trains on all devices of a node; starts nothing.

Knows which models can be built again in another process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.device_list import AUTO
from neuroswarm.errors import ConfigError
from neuroswarm.node.device_choice import choose_devices, count_beside
from neuroswarm.node.workload import Prepared, Workload
from neuroswarm.training.devices import Devices, share_threads
from neuroswarm.training.rank_process import command_for
from neuroswarm.training.ranks import Patience, Ranks
from neuroswarm.training.threads import choose_num_threads

logger = logging.getLogger(__name__)

RANK_MODULE = "neuroswarm.node.rank_start"


def plan_devices(config: SwarmNodeConfig, workload: Workload) -> tuple[str, ...]:
    """The devices that a node can train on, the main one first.

    Raises:
        ConfigError: several are asked for, and the model cannot be built on each.
    """
    devices = choose_devices(config.resources)
    why = _why_one(config, workload) if len(devices) > 1 else ""
    if not why:
        if config.run.training and config.resources.devices is None and count_beside(devices[0]):
            logger.info(
                "training on %s; %d more beside it: resources.devices=auto takes all",
                devices[0],
                count_beside(devices[0]),
            )
        return devices
    if config.resources.devices != AUTO:
        raise ConfigError(f"resources.devices: {config.resources.devices}: {why}")
    if config.run.training:
        logger.info("training on %s of %d devices: %s", devices[0], len(devices), why)
    return devices[:1]


def make_devices(
    config: SwarmNodeConfig,
    prepared: Prepared,
    devices: Sequence[str],
    patience: Patience | None = None,
) -> Devices:
    """What trains on the devices of a node; starts nothing.

    Args:
        config: The settings.
        prepared: What is trained.
        devices: From `plan_devices`; only the main one if the node does not train.
        patience: How long to wait for further devices; None for the default.
    """
    trainer = prepared.trainer
    if trainer.why_idle or trainer.is_hollow or not config.run.training or len(devices) == 1:
        devices = (str(trainer.device),)
    job = make_job(config, prepared.vocab_size)
    max_threads = config.resources.max_cpu_threads
    return Devices(trainer, devices, partial(_recruit, job, max_threads, patience or Patience()))


def make_job(config: SwarmNodeConfig, vocab_size: int) -> dict[str, Any]:
    """What the process of a further device is told, besides its place: JSON values."""
    return {
        "training": config.training.model_dump(mode="json"),
        "lora": config.lora.model_dump(mode="json"),
        "vocab_size": vocab_size,
        "niceness": config.guest.niceness,
    }


def _recruit(
    job: Mapping[str, Any], max_threads: int, patience: Patience, devices: Sequence[str]
) -> Ranks:
    num_threads = share_threads(len(devices), devices[0], choose_num_threads(max_threads))
    return Ranks(command_for(RANK_MODULE), {**job, "num_threads": num_threads}, devices, patience)


def _why_one(config: SwarmNodeConfig, workload: Workload) -> str:
    """Why the node can use one device only; empty if it can use several."""
    if workload.has_own_loop:
        return "a loop of your own trains on the device where it has its model"
    if workload.model is not None or workload.loss_fn is not None:
        what = "model" if workload.model is not None else "loss_fn"
        return (
            f"a {what} that is handed over cannot be made again in the process of another device "
            "(name a factory: training.model='module:factory', which may give the loss too)"
        )
    return ""
