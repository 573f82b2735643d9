"""What a training loop outside of the node and the node have to do with each other.

Knows when the node may have the model; refuses to know what the loop trains on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

from neuroswarm.errors import ConfigError, LifecycleError
from neuroswarm.node.core import NodeCore
from neuroswarm.node.solo import REST_S
from neuroswarm.service import State
from neuroswarm.training.interrupts import Interrupts
from neuroswarm.training.lent import LentThread
from neuroswarm.training.loop_model import Evaluate, LoopModel

logger = logging.getLogger(__name__)

T = TypeVar("T")


class OwnLoop:
    """A loop's way to its node. It outlives the node: then the loop goes on alone.

    The model is the loop's from `attach` on. The node's jobs with it (a copy to publish or to
    save, the move to the next outer state) run at the end of `step`, inside `paused`, and while
    the loop's thread waits in `node.stop()`. Nothing here waits for the network, and nothing that
    fails there is raised here.

    Threads: one thread at a time, not the event loop's.
    """

    def __init__(self, core: NodeCore, loop: asyncio.AbstractEventLoop) -> None:
        parts = core.require_parts()
        if not isinstance(parts.compute, LentThread) or not isinstance(parts.trainer, LoopModel):
            raise ConfigError(
                "this node has data to train on by itself: for a loop of your own give "
                "create_swarm_node model=, and neither data= nor data.path"
            )
        self._core = core
        self._loop = loop
        self._compute = parts.compute
        self._model = parts.trainer
        self._replica = parts.replica
        self._interrupts = Interrupts()
        self._is_checked = self._is_told = False

    @property
    def num_steps(self) -> int:
        """Inner steps since the node first started, over all its lives."""
        return self._model.total.steps

    def attach(self, optimizer: torch.optim.Optimizer, evaluate: Evaluate | None) -> None:
        """Take the model for the loop.

        Raises:
            LifecycleError: the node does not run, or has an optimiser already.
            ConfigError, CheckpointError: as `LoopModel.attach`; the node has the model again.
        """
        if self._core.state is not State.RUNNING:
            raise LifecycleError(f"node: {self._core.state.name.lower()} (start it first)")
        if self._model.is_attached:
            raise LifecycleError("node: it has an optimiser already (one for each node)")
        self._compute.take()
        with ExitStack() as undo:
            undo.callback(self._compute.give_back)
            is_restored = self._model.attach(optimizer, evaluate)
            undo.pop_all()
        logger.info(
            "%s takes the inner steps, %d so far; its state is %s",
            type(optimizer).__name__,
            self.num_steps,
            "that of the checkpoint" if is_restored else "as it was given",
        )

    def step(self, update: Callable[[], T], read: Callable[[T], tuple[float | None, int]]) -> T:
        """Take an inner step, and let the node have the model.

        Ctrl-C and termination are put off until the update is whole and counted.

        A node that is alone has its round committed first, as when it takes the steps itself
        (`neuroswarm.node.solo`): for 10 s at most, and no network is involved.

        Args:
            update: Changes the parameters.
            read: Loss and tokens of the step, from what `update` returned.

        Raises:
            LifecycleError: inside `paused`, where the model is the node's.
            ConfigError: after the first step the optimiser's state cannot be put down.
        """
        is_running = self._core.state is State.RUNNING
        if self._compute.is_lent and is_running:
            raise LifecycleError("step() inside paused(): the model is the node's there")
        with self._interrupts.held_back():
            with self._compute.stepping():
                result = update()
            self._model.count(*read(result))
            self._compute.count_step()
        if not self._is_checked:
            self._is_checked = True
            self._model.check_state()
        if is_running:
            self._take_part()
        self._compute.serve()
        while is_running and self._is_held():
            time.sleep(REST_S)
            self._compute.serve()
        self._say_alone()
        return result

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside an update: what only reads the parameters, such as a closure."""
        with self._compute.stepping(writes=False), self._interrupts.allowed():
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, the node has the model; the loop must not use it."""
        with self._compute.lent():
            yield

    def _take_part(self) -> None:
        if not self._core.is_training:
            # A loop that was closed meanwhile: the node has stopped, on another thread.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._core.begin_training)
        self._replica.note_step()

    def _is_held(self) -> bool:
        return self._replica.solo.is_held() and self._core.state is State.RUNNING

    def _say_alone(self) -> None:
        if self._is_told or self._core.fault is None:
            return
        self._is_told = True
        logger.error("node failed; the training loop goes on alone", exc_info=self._core.fault)
