"""The devices that a node trains on: its own, and further ones as long as they last.

What fails on a further device never reaches the node's training: it goes on with those that are
left. Refuses to know how processes and devices talk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from torch import Tensor

from neuroswarm.service import Service
from neuroswarm.training.rank_group import GroupBroken
from neuroswarm.training.ranks import DeviceLost, Ranks, schema_of
from neuroswarm.training.trained_model import TrainedModel
from neuroswarm.training.trainer import Trainer

logger = logging.getLogger(__name__)

TRAINS, STARTS, ENDED = "trains", "starts", "ended"


class Devices(Service):
    """Starts the processes of further devices with the node, and ends them with it.

    Where one fails, all of them are ended and those that are left are started again beside the
    training, which goes on on the main device meanwhile. A device that failed is not tried again.

    Args:
        trainer: Whose steps they share; a `Trainer` if there are several.
        devices: The main one first.
        recruit: Devices, the main one first -> their `Ranks`, not started.

    Threads: `differentiate` belongs to the compute thread, `get_status` to any.
    """

    name = "devices"

    def __init__(
        self,
        trainer: TrainedModel,
        devices: Sequence[str],
        recruit: Callable[[Sequence[str]], Ranks],
    ) -> None:
        super().__init__()
        self._trainer = trainer
        self._first, *self._further = devices
        self._recruit = recruit
        self._schema = ""
        self._lost: dict[str, str] = {}
        self._lock = threading.Lock()
        self._ranks: Ranks | None = None
        """Those that take part in steps."""
        self._starting: Ranks | None = None
        self._wanted = threading.Event()
        """Set when those that are left are to be started."""
        self._settled = threading.Event()
        """Set once it is known who takes part in the first step."""
        self._closed = threading.Event()

    async def _open(self, stack: AsyncExitStack) -> None:
        if not self._further:
            return
        assert isinstance(self._trainer, Trainer), "a loop of one's own has one device"
        stack.push_async_callback(asyncio.to_thread, self._close)
        self._schema = schema_of(self._trainer.model)
        self._trainer.others = self
        self._wanted.set()
        # Not from the compute thread: children have the priority of the thread that starts them.
        threading.Thread(target=self._keep_starting, name=self.name, daemon=True).start()
        await asyncio.to_thread(self._settled.wait)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that take part in steps."""
        ranks = self._ranks
        return () if ranks is None else ranks.pids

    def get_status(self) -> list[dict[str, str]]:
        """Each device and what it does, for `/status`."""
        with self._lock:
            others = [{"device": name, "state": self._describe(name)} for name in self._further]
        own = "idle" if self._trainer.why_idle else TRAINS
        return [{"device": self._first, "state": own}, *others]

    def share(self, num_threads: int) -> int:
        """Threads of the main device, where so many are for the whole node."""
        return share_threads(1 + len(self._left()), self._first, num_threads)

    def differentiate(
        self, trainer: Trainer, inputs: Tensor, targets: Tensor
    ) -> tuple[float, bool] | None:
        """As `Trainer.differentiate`, on all devices; None if only the main one is left.

        Raises:
            OutOfMemory, ComputeError: the main device failed.
        """
        ranks = self._ranks
        if ranks is None:
            return None
        try:
            return ranks.differentiate(trainer, inputs, targets, trainer.position)
        except DeviceLost as error:
            self._give_up(ranks, error)
            return None

    # -- inside ----------------------------------------------------------------------

    def _give_up(self, ranks: Ranks, error: DeviceLost) -> None:
        """End them all, and start those again that are not at fault."""
        with self._lock:
            if self._closed.is_set():
                return
            self._ranks = None
            self._note(error)
        _end(ranks)
        self._wanted.set()

    def _note(self, error: DeviceLost) -> None:
        """Remember and say what was lost; the lock is held."""
        self._lost |= error.lost
        left = len(self._left()) + 1
        for name, why in error.lost.items():
            logger.warning(
                "device %s is lost: %s; %d of %d devices are left",
                name,
                why,
                left,
                len(self._further) + 1,
            )

    def _left(self) -> list[str]:
        return [name for name in self._further if name not in self._lost]

    def _keep_starting(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed.is_set():
                return
            try:
                self._start_those_left()
            finally:
                self._settled.set()

    def _start_those_left(self) -> None:
        while left := self._left():
            ranks = self._recruit([self._first, *left])
            with self._lock:
                if self._closed.is_set():
                    return
                self._starting = ranks
            try:
                ranks.start(self._schema)
            except DeviceLost as error:
                _end(ranks)
                with self._lock:
                    self._starting = None
                    if self._closed.is_set():
                        return
                    self._note(error)
                continue
            with self._lock:
                self._starting = None
                if not self._closed.is_set():
                    self._ranks = ranks
                    logger.info("training on %s", ", ".join(ranks.devices))
                    return
            _end(ranks)

    def _describe(self, device: str) -> str:
        """What a further device does; the lock is held."""
        if device in self._lost:
            return f"lost: {self._lost[device]}"
        if self._ranks is not None:
            return TRAINS
        return ENDED if self._closed.is_set() else STARTS

    def _close(self) -> None:
        with self._lock:
            self._closed.set()
            ranks, self._ranks = self._ranks or self._starting, None
        self._wanted.set()
        self._settled.set()
        if ranks is not None:
            _end(ranks)


def share_threads(num_devices: int, main: str, num_threads: int) -> int:
    """Threads of one device of several, where so many are for the whole node.

    Processors share them; the processes of accelerators mostly wait.
    """
    return max(1, num_threads // num_devices) if main.startswith("cpu") else num_threads


def _end(ranks: Ranks) -> None:
    """End the processes, whatever state they are in."""
    try:
        ranks.close()
    except GroupBroken as error:
        logger.warning("%s", error)
