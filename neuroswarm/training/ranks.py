"""The further devices of a node in one life of theirs: started together, and given up together.

The main device is the node's own; it has the model, the optimiser and the data. The others get
parameters and parts of each batch, and give gradients. Refuses to know what follows from a
failure.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuroswarm.training.rank_group import GroupBroken, RankGroup, join_group
from neuroswarm.training.rank_process import RankProcess
from neuroswarm.training.trainer import Trainer

_BLAME_S = 2.0
"""Longest wait for a device that failed to be seen to have ended."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the main device waits for the others, in seconds."""

    start_s: float = 300.0
    """For their processes to import and to build the model."""
    collective_s: float = 60.0
    """For them to meet, to take the parameters and to give the gradients: none has to compute
    anything then."""
    first_step_s: float = 300.0
    """For their first step: libraries are loaded and kernels chosen or compiled in it."""
    step_s: float = 30.0
    """For a later one, at least."""
    step_factor: float = 5.0
    """For a later one, as a multiple of what the main device took for its own part."""


class DeviceLost(Exception):
    """Some devices failed, and with them the whole group."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{device}: {why}" for device, why in lost.items()))
        self.lost = dict(lost)
        """Why, by the device."""


class Ranks:
    """Processes of further devices that take their parts of each step.

    Threads: `start` on one thread, then all else on the thread that owns the model; `close` on
    any, once no other call is in progress.
    """

    def __init__(
        self,
        command: Sequence[str],
        job: Mapping[str, Any],
        devices: Sequence[str],
        patience: Patience,
    ) -> None:
        """Know of them; nothing is started.

        Args:
            command: Starts a process of a further device.
            job: What it is told first, besides its place: JSON values.
            devices: The main one first, and at least one more.
            patience: How long to wait for the others.
        """
        self.devices = tuple(devices)
        """The main one first."""
        self._command, self._job, self._patience = command, job, patience
        self._processes: list[RankProcess] = []
        self._folder: Path | None = None
        self._group: RankGroup | None = None
        self._has_all = False
        """Whether the others have the parameters that do not change, too."""
        self._num_due = 0
        """Reports of a step that was broken off which are still to come."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes."""
        return tuple(process.pid for process in self._processes)

    def start(self, schema: str) -> None:
        """Start the processes, and return once all have built the model and met.

        Args:
            schema: `schema_of` the model, which theirs must have too.

        Raises:
            DeviceLost: one of them did not come so far; the others are to be closed.
        """
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="neuroswarm-devices-"))
        except OSError as error:
            why = f"no folder to meet in: {error}"
            raise DeviceLost(dict.fromkeys(self.devices[1:], why)) from error
        size = len(self.devices)
        for rank, device in enumerate(self.devices[1:], start=1):
            try:
                process = RankProcess(self._command, device)
            except OSError as error:
                raise DeviceLost({device: f"no process can be started: {error}"}) from error
            self._processes.append(process)
            place = {"device": device, "rank": rank, "size": size, "folder": str(self._folder)}
            self._send(process, {**self._job, **place}, within_s=self._patience.start_s)
        deadline = time.monotonic() + self._patience.start_s
        for process in self._processes:
            built = self._hear(process, within_s=max(0.0, deadline - time.monotonic()))
            if built.get("schema") != schema:
                raise DeviceLost({process.device: "the model that was built there is another one"})
        for process in self._processes:
            self._send(process, {"do": "join"})
        self._meet()

    def differentiate(
        self, trainer: Trainer, inputs: Tensor, targets: Tensor, position: int
    ) -> tuple[float, bool]:
        """As `Trainer.differentiate` of the whole batch, with the gradients of all devices.

        Raises:
            DeviceLost: a device failed; the trainer's gradients are of no use.
            OutOfMemory, ComputeError: the main device failed, as `Trainer.differentiate`.
        """
        self._catch_up()
        num_targets = targets.numel()
        parts = split_batch(inputs, targets, len(self.devices))
        patience_s = self._patience.step_s if self._has_all else self._patience.first_step_s
        self._give_out(trainer, parts[1:], position, num_targets)
        began = time.monotonic()
        self._num_due = len(self._processes)
        own = trainer.differentiate(*parts[0], num_targets=num_targets)
        own_s = time.monotonic() - began
        reports = self._hear_all(max(patience_s, self._patience.step_factor * own_s))
        loss = own[0] + math.fsum(float(report["loss"]) for report in reports)
        if not (own[1] and math.isfinite(loss)):
            self._tell({"do": "drop"})
            return loss, False
        present = have_gradients(trainer, [str(report["has"]) for report in reports])
        self._tell({"do": "sum", "has": present})
        try:
            gradients = gradients_of(trainer, present)
            self._joined.sum_at_main(gradients, within_s=self._patience.collective_s)
        except (GroupBroken, RuntimeError) as error:  # the latter: no memory for a bucket
            raise self._blame(error) from error
        return loss, True

    def close(self) -> None:
        """End the processes at once, and let go of everything."""
        for process in self._processes:
            process.kill()
        group, self._group = self._group, None
        try:
            if group is not None:
                group.close()
        finally:
            del group
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    # -- inside ----------------------------------------------------------------------

    @property
    def _joined(self) -> RankGroup:
        assert self._group is not None, "start() makes it"
        return self._group

    def _meet(self) -> None:
        assert self._folder is not None, "start() makes it"
        within_s, device = self._patience.collective_s, torch.device(self.devices[0])
        try:
            group = join_group(self._folder, device, 0, len(self.devices), within_s=within_s)
            self._group = RankGroup(group, 0, self._are_alive)
            first = torch.zeros(1, device=device)  # opens the connections
            self._group.copy_from_main([first], within_s=within_s)
        except GroupBroken as error:
            raise self._blame(error) from error

    def _are_alive(self) -> bool:
        return all(process.is_alive for process in self._processes)

    def _give_out(
        self,
        trainer: Trainer,
        parts: Sequence[tuple[Tensor, Tensor]],
        position: int,
        num_targets: int,
    ) -> None:
        """Tell the others what to do, and give them parameters and buffers as they are now."""
        step = {
            "do": "step",
            "position": position,
            "num_targets": num_targets,
            "is_bf16": trainer.is_bf16,
            "piece": trainer.batching.piece,
            "all": not self._has_all,
        }
        for process, (inputs, targets) in zip(self._processes, parts, strict=True):
            self._send(process, step, {"inputs": inputs, "targets": targets})
        tensors = state_of(trainer, has_all=self._has_all)
        try:
            self._joined.copy_from_main(tensors, within_s=self._patience.collective_s)
        except (GroupBroken, RuntimeError) as error:
            raise self._blame(error) from error
        self._has_all = True

    def _catch_up(self) -> None:
        """Hear what is left of a step that the main device broke off."""
        if self._num_due:
            self._hear_all(self._patience.step_s)
            self._tell({"do": "drop"})

    def _hear_all(self, within_s: float) -> list[dict[str, Any]]:
        deadline = time.monotonic() + within_s
        reports = []
        for process in self._processes[-self._num_due :]:
            report = self._hear(process, within_s=max(0.0, deadline - time.monotonic()))
            self._num_due -= 1
            reports.append(report)
        return reports

    def _hear(self, process: RankProcess, *, within_s: float) -> dict[str, Any]:
        try:
            document, _ = process.channel.receive(within_s=within_s)
        except TimeoutError as error:
            why = process.explain_end() or f"no answer within {within_s:.0f} s"
            raise DeviceLost({process.device: why}) from error
        except (EOFError, OSError, ValueError) as error:
            raise self._blame(error) from error
        if "failed" in document:
            raise DeviceLost({process.device: str(document["failed"])})
        if "broken" in document:
            raise self._blame(GroupBroken(str(document["broken"])))
        return document

    def _tell(self, document: Mapping[str, Any]) -> None:
        for process in self._processes:
            self._send(process, document)

    def _send(
        self,
        process: RankProcess,
        document: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None = None,
        *,
        within_s: float | None = None,
    ) -> None:
        try:
            process.channel.send(document, tensors, within_s=within_s or self._patience.step_s)
        except TimeoutError as error:
            raise DeviceLost({process.device: "its process takes no messages"}) from error
        except OSError as error:
            raise self._blame(error) from error

    def _blame(self, error: Exception) -> DeviceLost:
        """Which devices are at fault: those whose processes have ended; all if none has."""
        deadline = time.monotonic() + _BLAME_S
        while self._are_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        ended = {p.device: why for p in self._processes if (why := p.explain_end())}
        return DeviceLost(ended or {p.device: str(error) for p in self._processes})


def split_batch(inputs: Tensor, targets: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """A batch in `size` parts, in order, of windows whose numbers differ by one at most.

    The first ones are the larger; some are empty where there are fewer windows. All but the first
    are on the CPU and contiguous.
    """
    pairs = zip(torch.tensor_split(inputs, size), torch.tensor_split(targets, size), strict=True)
    first, *others = pairs
    return [first, *((i.cpu().contiguous(), t.cpu().contiguous()) for i, t in others)]


def schema_of(model: nn.Module) -> str:
    """Hash of the names, shapes and dtypes of all parameters and buffers, in order."""
    found = [
        [name, list(tensor.shape), str(tensor.dtype)]
        for named in (model.named_parameters(), model.named_buffers())
        for name, tensor in named
    ]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def state_of(trainer: Trainer, *, has_all: bool) -> list[Tensor]:
    """What a device needs of the model for a step.

    Args:
        trainer: Of the model.
        has_all: Whether it has what steps do not change already.
    """
    if not has_all:
        return [*trainer.model.parameters(), *trainer.model.buffers()]
    trained = [parameter for _, parameter in trainer.fragments.parameters]
    return [*trained, *trainer.persistent_buffers().values()]


def have_gradients(trainer: Trainer, others: Sequence[str] = ()) -> str:
    """Which parameters have a gradient, here or at one of the others: `1` or `0` for each."""
    own = "".join("01"[p.grad is not None] for _, p in trainer.fragments.parameters)
    return "".join(max(flags) for flags in zip(own, *others, strict=True))


def gradients_of(trainer: Trainer, present: str) -> list[Tensor]:
    """The gradients that are `present` somewhere; where there is none, zeros take its place."""
    found = []
    for (_, parameter), flag in zip(trainer.fragments.parameters, present, strict=True):
        if flag == "0":
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        found.append(parameter.grad)
    return found
