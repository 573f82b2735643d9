"""The public face of a node, for callers with an event loop and for those without.

Knows no part of the node; `neuroswarm.node.core` does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.sections import RunConfig
from neuroswarm.errors import ClonedIdentity, ConfigError, LifecycleError
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.own_loop import OwnLoop
from neuroswarm.node.renaming import left_of, take_new_identity
from neuroswarm.node.running import run_until
from neuroswarm.node.workload import Workload
from neuroswarm.training.compute import RESTED

T = TypeVar("T")


class SwarmNode:
    """A peer of a swarm; made by `create_swarm_node`.

    Use it in one of two ways:

    - `async with node:` on the caller's event loop, then `await node.run()` or
      `await node.train_step_async()`;
    - `node.start()`, `node.train_step()` or `node.train()`, `node.stop()` without a loop: the
      node brings its own, in a background thread.

    Nothing trains before `run`, `train`, `train_step` or `train_step_async`.
    """

    def __init__(
        self,
        config: SwarmNodeConfig,
        token: SwarmToken,
        workload: Workload,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.config = config
        self._made_of = (config, token, workload, surroundings)
        self._core = NodeCore(*self._made_of)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    @property
    def core(self) -> NodeCore:
        """The node itself, for tests and embedders."""
        return self._core

    # -- with an event loop ----------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._core.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._core.stop()

    async def run(self, **limits: Any) -> str:
        """Train until a limit is reached; returns which, in words.

        Args:
            limits: `rounds`, `minutes`, `tokens`, `until_loss`; those of the configuration if
                none is given. Without any limit it trains until cancelled.

        Raises:
            ComputeError: an inner step failed.
            LifecycleError: the node is not started, or training is off.
        """
        self._require_training()
        wanted = RunConfig(**limits) if limits else self.config.run
        return await self._run_until(wanted, trains=True)

    async def follow(self) -> str:
        """Follow the rounds of others, without training, until a limit of the configuration.

        Without any limit until cancelled. Returns which it was, in words.
        """
        return await self._run_until(self.config.run, trains=False)

    async def _run_until(self, limits: RunConfig, *, trains: bool) -> str:
        """Run, under a new identity where another node goes by this one's."""
        while True:
            core = self._core
            try:
                return await run_until(core, limits, trains=trains)
            except ExceptionGroup as errors:
                if errors.subgroup(ClonedIdentity) is None:
                    raise
            limits = left_of(limits, core)
            await take_new_identity(core)
            self._core = NodeCore(*self._made_of)
            await self._core.start()

    async def train_step_async(self) -> float | None:
        """Take one inner step; returns its loss, or None if training is off or there is no data."""
        if not self.config.run.training:
            return None
        self._require_own_steps()
        self._core.begin_training()
        parts = self._core.require_parts()
        if not parts.trainer.has_data():
            return None
        while (report := await parts.compute.run(parts.replica.step)) is RESTED:
            pass
        return report.loss

    # -- without an event loop -------------------------------------------------------

    def start(self) -> None:
        """Start on an event loop of the node's own; returns once it holds an outer state.

        Raises:
            LifecycleError: it was started before.
            ConfigError, CheckpointError, AdmissionError: it cannot start; says why.
        """
        if self._loop_thread is not None:
            raise LifecycleError("node: started before")
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(
            target=self._loop.run_forever, name="neuroswarm-loop", daemon=True
        )
        self._loop_thread.start()
        with ExitStack() as undo:
            undo.callback(self._end_loop)
            self._call(self._core.start())
            undo.pop_all()

    def stop(self) -> None:
        """Leave the swarm, write a last checkpoint, release everything; safe to call twice.

        With a training loop of your own call it on the loop's thread: it waits for the loop's
        next step elsewhere, 5 seconds at most, and without one writes no last checkpoint.
        """
        if self._loop is None or self._loop.is_closed():
            return
        if self._core.parts is not None:
            self._core.parts.compute.leave()
        try:
            self._call(self._core.stop())
        finally:
            self._end_loop()

    def train_step(self) -> float | None:
        """Take one inner step; returns its loss in nats, or None if training is off.

        None too while no token shards are here yet, and while the node rests because others need
        the machine (`guest`, `get_stats()["trains_not_because"]` says why): after a moment, so
        that a loop may go on asking.

        Rounds go on beside it: nothing on the network is waited for.

        Raises:
            LifecycleError: the node is not started, or this is called on its event loop
                (use `await node.train_step_async()` there).
        """
        if not self.config.run.training:
            return None
        self._require_own_steps()
        parts = self._core.require_parts()
        if self._loop_thread is None:
            raise LifecycleError(
                "node: train_step() would block the event loop it runs on "
                "(use `await node.train_step_async()`)"
            )
        if not self._core.is_training:
            self._call(self._begin())
        if not parts.trainer.has_data():
            return None
        step = partial(parts.fitting.duty.step, parts.replica.step)
        while (report := parts.compute.run_sync(step)) is RESTED:
            if parts.fitting.duty.is_resting:
                return None
        return report.loss

    def train(self, **limits: Any) -> str:
        """Like `run`, for callers without an event loop; blocks."""
        return self._call(self.run(**limits))

    def take_loop(self) -> OwnLoop:
        """Have a training loop of the caller's take the inner steps; `SwarmOptimizer` calls it.

        Raises:
            LifecycleError: the node is not started, or this is its event loop's thread, which a
                training loop would block.
            ConfigError: training is off, or the node has data to train on by itself.
        """
        if self._loop is None or self._core.parts is None:
            raise LifecycleError("node: not started (call node.start() before SwarmOptimizer)")
        if _running_loop() is self._loop:
            raise LifecycleError(
                "node: a training loop would block the event loop it runs on (give it a thread, "
                "or use node.start() instead of `async with`)"
            )
        if not self.config.run.training:
            raise ConfigError("training is off (enable_training=True turns it on)")
        return OwnLoop(self._core, self._loop)

    async def _begin(self) -> None:
        self._core.begin_training()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise LifecycleError("node: not started (use start(), or `async with`)")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        assert self._loop is not None, "start() makes it"
        assert self._loop_thread is not None, "start() makes it"
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join()
        self._loop.close()

    def _require_training(self) -> None:
        if not self.config.run.training:
            raise LifecycleError("node: training is off (enable_training=True turns it on)")
        self._require_own_steps()

    def _require_own_steps(self) -> None:
        _, _, workload, _ = self._made_of
        if workload.has_own_loop:
            raise LifecycleError(
                "node: it has no data, so a loop of yours trains its model (SwarmOptimizer); to "
                "have the node train it, give data= to create_swarm_node"
            )

    # -- what callers ask, at any time -----------------------------------------------

    def get_stats(self) -> Mapping[str, object]:
        """Everything that `/status` shows; empty before the node has started."""
        parts = self._core.parts
        return {} if parts is None else parts.reporter.status()

    def get_swarm_status(self) -> Mapping[str, object]:
        """The peers that this node knows, and how many of them live."""
        parts = self._core.parts
        peers: Sequence[Mapping[str, object]] = [] if parts is None else parts.reporter.peers()
        return {
            "num_known": len(peers),
            "num_alive": sum(bool(peer["is_alive"]) for peer in peers),
            "peers": peers,
        }

    def get_diloco_progress(self) -> Mapping[str, object]:
        """Round in progress, inner steps taken and wanted."""
        parts = self._core.parts
        return {} if parts is None else parts.reporter.progress()

    def get_global_training_status(self) -> Mapping[str, object]:
        """Whether training improves the model, and whether all nodes have the same weights.

        Every value is as this node sees the swarm now, from the peers' signed heartbeats.

        Returns:
            Empty before the node has started; else

            - `round`, `digest`: the outer state held here; None before there is one;
            - `loss`: the swarm's held-out loss, nats per token, of the state of round
              `loss_round`, from the figures of `loss_nodes` members; None before the first;
            - `best_loss`: the least of the last 32 rounds of this life of the node;
            - `trend`: `falling`, `level` or `rising` over those rounds, beyond what chance makes
              (Mann-Kendall, 5 %), and `is_improving`: whether it falls; None below five rounds;
            - `nodes`: live nodes, this one among them, of which `nodes_same` stand on the very
              same state, `nodes_behind` on an earlier one of the same lineage, `nodes_ahead` on a
              later one, `nodes_apart` on other weights for the same round, and `nodes_unknown`
              have none or have not said;
            - `has_converged`: whether none is apart; None before there is a state here.
        """
        parts = self._core.parts
        return {} if parts is None else parts.reporter.global_training()

    @property
    def current_training_round(self) -> int:
        """Round of the outer state held; 0 before there is one."""
        parts = self._core.parts
        return parts.replica.state.round if parts and parts.replica.has_state else 0

    @property
    def total_training_rounds(self) -> int:
        """Rounds committed here since the start."""
        parts = self._core.parts
        return 0 if parts is None else parts.reporter.statistics.rounds_committed

    @property
    def total_training_steps(self) -> int:
        """Inner steps, over all lives of the node."""
        parts = self._core.parts
        return 0 if parts is None else parts.trainer.total.steps

    @property
    def current_loss(self) -> float | None:
        """Training loss of the newest inner step, nats; None before the first."""
        parts = self._core.parts
        return None if parts is None else parts.trainer.last_loss

    @property
    def total_tokens_processed(self) -> int:
        """Tokens trained on, over all lives of the node."""
        parts = self._core.parts
        return 0 if parts is None else parts.trainer.total.tokens


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the calling thread, if one runs there."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
