"""Copies and sums of tensors over the devices of one node, by torch.distributed.

Rank 0 is the main one, the node itself. Knows nothing of models and of who the ranks are.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BUCKET_BYTES = 16 * 1024 * 1024
"""Smaller tensors travel together, up to so many bytes."""

_FIRST_LOOK_S, _LAST_LOOK_S = 20e-6, 1e-3
_CHECK_S = 0.05
"""Between two looks whether the other ranks are still there."""


class GroupBroken(Exception):
    """A rank has gone, or does not come to where the others are; the group is of no use."""


class RankGroup:
    """The ranks of one node; of no use to anybody after the first error.

    Args:
        group: A process group of torch.distributed.
        rank: This one's number.
        is_whole: Whether the others are still there; asked while waiting for them.

    Threads: one at a time.
    """

    def __init__(self, group: Any, rank: int, is_whole: Callable[[], bool]) -> None:
        self._group = group
        self._rank = rank
        self._is_whole = is_whole

    @torch.no_grad()
    def copy_from_main(self, tensors: Iterable[Tensor], *, within_s: float) -> None:
        """Give the tensors of the main rank to the others, bit for bit.

        Args:
            tensors: Of the same shapes and dtypes in the same order at all ranks; those of the
                others are written. Any dtypes; all on the rank's device.
            within_s: Longest wait for the others, seconds.

        Raises:
            GroupBroken: a rank has gone, or did not come in time.
        """
        from torch.distributed import BroadcastOptions

        options = BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        for bucket in bucketed(tensors):
            flat = _together(bucket)
            begin = partial(self._group.broadcast, [flat.view(torch.uint8)], options)
            self._finish(begin, within_s)
            if self._rank:
                _apart(flat, bucket)

    @torch.no_grad()
    def sum_at_main(self, tensors: Iterable[Tensor], *, within_s: float) -> None:
        """Add up the ranks' tensors at the main one; those of the others are of no use afterwards.

        The order of the additions depends on the sizes and the number of ranks alone: the same
        values give the same bits.

        Args:
            tensors: Of the same shapes and floating dtypes in the same order at all ranks.
            within_s: Longest wait for the others, seconds.

        Raises:
            GroupBroken: a rank has gone, or did not come in time; the tensors may be written.
        """
        from torch.distributed import ReduceOp, ReduceOptions

        options = ReduceOptions()
        options.rootRank = options.rootTensor = 0
        options.reduceOp = ReduceOp.SUM  # type: ignore[assignment]
        for bucket in bucketed(tensors):
            flat = _together(bucket)
            self._finish(partial(self._group.reduce, [flat], options), within_s)
            if not self._rank:
                _apart(flat, bucket)

    def close(self) -> None:
        """Let go of it; the other processes must have ended, or be about to."""
        group, self._group = self._group, None
        if hasattr(group, "abort"):  # of NCCL: its kernels wait for the others for ever
            try:
                group.abort()
            except RuntimeError as error:
                raise GroupBroken(f"NCCL does not let go: {error}") from error

    def _finish(self, begin: Callable[[], Any], within_s: float) -> None:
        """Begin a collective operation and wait until it is done, with an eye on the others."""
        try:
            work = begin()
            deadline, check_at, pause_s = time.monotonic() + within_s, 0.0, _FIRST_LOOK_S
            while not work.is_completed():
                now = time.monotonic()
                if now >= check_at:
                    check_at = now + _CHECK_S
                    if now > deadline or not self._is_whole():
                        raise GroupBroken("a device does not answer")
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _LAST_LOOK_S)
            work.wait()  # raises what went wrong; on an accelerator, orders the streams
        except RuntimeError as error:
            raise GroupBroken(str(error).partition("\n")[0]) from error


def bucketed(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one dtype, in their order, in groups of about `BUCKET_BYTES`; none is empty."""
    open_: dict[torch.dtype, list[Tensor]] = {}
    sizes: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if not tensor.numel():
            continue
        bucket = open_.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
        if sizes[tensor.dtype] >= BUCKET_BYTES:
            yield open_.pop(tensor.dtype)
            del sizes[tensor.dtype]
    yield from open_.values()


def join_group(folder: Path, device: torch.device, rank: int, size: int, *, within_s: float) -> Any:
    """Meet the other ranks, in a file of a folder that only this user can write to.

    gloo's sockets are bound to 127.0.0.1. The group is not torch's default one, so that code of
    the user's that has one of its own is not disturbed.

    Args:
        folder: New for each group.
        device: This rank's; NCCL for CUDA, else gloo.
        rank: This one's number.
        size: How many there are.
        within_s: Longest wait for the others, and for each operation.

    Raises:
        GroupBroken: they are not there in time, or the library fails.
    """
    dist: Any = importlib.import_module("torch.distributed")  # much of it has no types
    patience = timedelta(seconds=within_s)
    try:
        store = dist.FileStore(str(folder / "ranks"), size)
        store.set_timeout(patience)
        if device.type == "cuda":
            return _join_nccl(dist, store, device, rank, size, patience)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = patience
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        return dist.ProcessGroupGloo(store, rank, size, options)
    except (RuntimeError, AttributeError) as error:  # AttributeError: a torch without it
        raise GroupBroken(str(error).partition("\n")[0]) from error


def _join_nccl(
    dist: Any, store: Any, device: torch.device, rank: int, size: int, patience: timedelta
) -> Any:
    """A group of NCCL. What it does about errors by itself is to end the process: not here."""
    os.putenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.putenv("TORCH_NCCL_ENABLE_MONITORING", "0")
    torch.cuda.set_device(device)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = patience
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _together(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one piece of memory, shape [N]; that of the tensor itself if there is one."""
    if len(tensors) == 1:
        return tensors[0].detach().contiguous().view(-1)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _apart(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Write the elements back to where they came from."""
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for part, tensor in zip(parts, tensors, strict=True):
        tensor.detach().copy_(part.view(tensor.shape))
