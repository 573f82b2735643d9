"""What the process of a further device does: takes its part of each step, and gives gradients.

Everything that lasts is the main device's. Refuses to know how its model is built.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from neuroswarm.data.sampler import Batch
from neuroswarm.training.rank_channel import RankChannel
from neuroswarm.training.rank_group import GroupBroken, RankGroup, join_group
from neuroswarm.training.ranks import gradients_of, have_gradients, schema_of, state_of
from neuroswarm.training.trainer import Trainer

logger = logging.getLogger(__name__)

_SEND_S = 60.0
_LONG_S = 3600.0
"""For a wait that the main device ends, by ending this process."""

Message = tuple[dict[str, Any], dict[str, Tensor]]


class NoBatches:
    """The data of a device that is given its windows."""

    def train(self, index: int) -> Batch:
        """Not here."""
        raise RuntimeError("a further device is given its windows")

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Not here."""
        raise RuntimeError("the main device measures")


class Inbox:
    """What the node says; where it has gone, this process ends, whatever it is doing."""

    def __init__(self, channel: RankChannel) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.folder: Path | None = None
        """What is deleted at the end: a node that was killed cannot."""
        threading.Thread(target=self._listen, name="neuroswarm-inbox", daemon=True).start()

    def take(self) -> Message:
        """Wait for the next message."""
        return self._messages.get()

    def _listen(self) -> None:
        try:
            while True:
                message = self._channel.receive(takes_tensors=True)
                if self.folder is None:  # here: the node may be gone before the job is looked at
                    self.folder = Path(message[0]["folder"])
                self._messages.put(message)
        except (EOFError, OSError):
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            os._exit(0)  # the main thread may be waiting for a device that never answers


class LastWords:
    """Tells the node what error this process ends with; the error goes on."""

    def __init__(self, channel: RankChannel) -> None:
        self._channel = channel

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
            self._channel.send({"failed": text[:1000]}, within_s=_SEND_S)


def work(channel: RankChannel, build: Callable[[Mapping[str, Any]], Trainer]) -> None:
    """Do what the node says until it has gone.

    Args:
        channel: To the node, which first sends the job.
        build: Job -> a trainer of the node's model, on this device, whose data is not asked for.

    Raises:
        Exception: what a step or `build` raises, once the node knows of it.
    """
    inbox = Inbox(channel)
    with LastWords(channel):
        job, _ = inbox.take()
        trainer = build(job)
        channel.send({"schema": schema_of(trainer.model)}, within_s=_SEND_S)
        inbox.take()  # to join
        device, rank = torch.device(job["device"]), int(job["rank"])
        try:
            joined = join_group(
                Path(job["folder"]), device, rank, int(job["size"]), within_s=_LONG_S
            )
            group = RankGroup(joined, rank, _always)
            group.copy_from_main([torch.zeros(1, device=device)], within_s=_LONG_S)
            while True:
                _take_part(inbox, channel, trainer, group, rank)
        except GroupBroken as error:  # the node finds out whose fault it is
            channel.send({"broken": str(error)}, within_s=_SEND_S)
            threading.Event().wait()


def _take_part(
    inbox: Inbox, channel: RankChannel, trainer: Trainer, group: RankGroup, rank: int
) -> None:
    """One step: parameters and windows in, loss and gradients out."""
    step, windows = inbox.take()
    group.copy_from_main(state_of(trainer, has_all=not step["all"]), within_s=_LONG_S)
    _settle_pieces(trainer, step["piece"])
    trainer.is_bf16 = bool(step["is_bf16"])
    loss, is_finite = 0.0, True
    trainer.zero_grad()
    if len(windows["inputs"]):
        loss, is_finite = trainer.differentiate(
            windows["inputs"],
            windows["targets"],
            num_targets=int(step["num_targets"]),
            place=(int(step["position"]), rank),
        )
    said = loss if is_finite else math.nan
    channel.send({"loss": said, "has": have_gradients(trainer)}, within_s=_SEND_S)
    decision, _ = inbox.take()
    if decision["do"] == "sum":
        group.sum_at_main(gradients_of(trainer, str(decision["has"])), within_s=_LONG_S)
    trainer.zero_grad()


def _settle_pieces(trainer: Trainer, piece: int | None) -> None:
    """No more windows at once than the main device takes, nor than memory bore here."""
    if piece is not None:
        own = trainer.batching.piece
        trainer.batching.piece = piece if own is None else min(own, piece)


def _always() -> bool:
    return True
