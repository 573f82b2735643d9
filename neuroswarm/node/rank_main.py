"""The process of a further device: builds the node's model, and computes for the node.

Started by the node (`neuroswarm.training.devices`), which its standard input leads to.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Mapping
from typing import Any

import torch

from neuroswarm.clock import SystemClock
from neuroswarm.config.lora import LoraConfig
from neuroswarm.config.model_shape import BUILT_IN
from neuroswarm.config.training import TrainingConfig
from neuroswarm.hardware.priority import lower_process
from neuroswarm.node.adapting import adapt
from neuroswarm.node.model_building import build_model
from neuroswarm.training.loss import next_token_loss
from neuroswarm.training.rank_channel import RankChannel
from neuroswarm.training.rank_worker import NoBatches, work
from neuroswarm.training.threads import limit_torch, stand_back
from neuroswarm.training.trainer import Trainer


def main() -> None:
    """Compute until the node ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the node decides; if it is killed, this ends too
    logging.basicConfig(level=logging.WARNING)
    work(RankChannel(socket.socket(fileno=0)), _settle_and_build)


def _settle_and_build(job: Mapping[str, Any]) -> Trainer:
    """Build the model, with the threads and at the priority that the node gives its devices."""
    limit_torch(int(job["num_threads"]))
    lower_process(int(job["niceness"]))
    trainer = build_trainer(job)
    stand_back()  # as the node's own compute thread; not before: the node waits for this
    return trainer


def build_trainer(job: Mapping[str, Any]) -> Trainer:
    """A trainer of the node's model without data.

    Raises:
        ConfigError: the model cannot be built here.
    """
    training, lora = TrainingConfig(**job["training"]), LoraConfig(**job["lora"])
    device = torch.device(job["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    built = build_model(training, int(job["vocab_size"]))
    has_weights = training.model not in BUILT_IN
    adapt(built.model, lora, seed=training.seed, has_weights=has_weights)
    torch.manual_seed(training.seed + int(job["rank"]))  # of what draws on the device itself
    return Trainer(
        built.model.to(device),
        NoBatches(),
        training,
        clock=SystemClock(),
        loss_fn=built.loss_fn or next_token_loss,
    )
