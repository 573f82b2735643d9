"""Trains until a limit is reached.

Knows the limits of a run; refuses to know how rounds work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from neuroswarm.config.sections import RunConfig
from neuroswarm.errors import (
    ComputeError,
    ConfigError,
    DataError,
    LifecycleError,
    NeuroswarmError,
    NonFiniteLoss,
    OutOfMemory,
)
from neuroswarm.models.user_factory import describe_error
from neuroswarm.node.core import NodeCore
from neuroswarm.node.parts import Parts
from neuroswarm.rounds.held_out import MIN_FIGURES
from neuroswarm.service import State
from neuroswarm.values import counted

logger = logging.getLogger(__name__)

TICK_S = 0.2

PROGRESS_S = 60.0
"""Seconds between two lines about the round in progress."""


async def run_until(core: NodeCore, limits: RunConfig, *, trains: bool = True) -> str:
    """Take part in rounds until a limit of the run is reached, or for ever.

    Args:
        core: A started node.
        trains: Whether to take inner steps back to back; else rounds are only followed.
        limits: Rounds, minutes, tokens, held-out loss; whichever comes first.

    Returns:
        Which limit was reached, for people.

    Raises:
        ConfigError: the model could not take the very first step, or does not fit its data.
        ComputeError: a later inner step failed.
        LifecycleError: the node is not started.

    Cancellation: training is paused; the node goes on serving.
    """
    parts = core.require_parts()
    reached = _watch(core, limits)
    trains = trains and not parts.trainer.why_idle
    if trains:
        core.begin_training()
        parts.compute.start_training(lambda: parts.fitting.duty.step(parts.replica.step))
    said_at = core.now()
    try:
        while (reason := reached()) is None:
            parts.recorder.progressed.clear()
            await _pause(parts.recorder.progressed)
            said_at = _say_progress(core, said_at) if trains else said_at
            if trains and (error := parts.compute.failure) is not None:
                if isinstance(error, OutOfMemory | DataError):
                    trains = False
                    _give_up(core, str(error))
                    continue
                raise _explain(error, is_first=not parts.trainer.total.steps) from error
            if core.state is not State.RUNNING:
                await core.wait_closed()  # raises what made the node fail
                raise LifecycleError("node: stopped while it was training")
    finally:
        core.end_training()
    await parts.recorder.drained()
    logger.info("run ended: %s", reason)
    return reason


def _explain(error: BaseException, *, is_first: bool) -> NeuroswarmError:
    """What ends the run; a model that cannot take its first step is a matter of the settings."""
    if isinstance(error, ConfigError):
        return ConfigError(str(error))
    said = str(error) if isinstance(error, ComputeError) else describe_error(error)
    if is_first and not isinstance(error, NonFiniteLoss):
        return ConfigError(f"training.model: the first step failed: {said}")
    return ComputeError(f"training stopped: {said}")


def _give_up(core: NodeCore, why: str) -> None:
    """Go on as a member that does not train: it has turned out that it cannot."""
    core.require_parts().trainer.why_idle = why
    logger.error("this node does not train from now on: %s", why)
    core.end_training()


def _say_progress(core: NodeCore, said_at: float) -> float:
    """One line a minute, so that a long round is not silent; returns when the last one was."""
    if core.now() - said_at < PROGRESS_S:
        return said_at
    parts = core.require_parts()
    progress, loss = parts.reporter.progress(), parts.trainer.last_loss
    logger.info(
        "round %s: %s of %s inner steps, training loss %s, %s",
        progress["round"],
        progress["inner_steps"],
        progress["inner_steps_wanted"],
        "unknown" if loss is None else f"{loss:.3f}",
        counted(len(parts.rounds.crowd.live()), "live peer"),
    )
    return core.now()


def _held_out_loss(parts: Parts) -> float | None:
    """The swarm's where one liar cannot move it, else what this node measured itself."""
    swarm = parts.rounds.crowd.held_out.newest()
    if swarm is not None and swarm.num_nodes >= MIN_FIGURES:
        return swarm.loss
    return parts.reporter.statistics.held_out_loss


async def _pause(progressed: asyncio.Event) -> None:
    """Wait until something has happened, or for a tick: steps and minutes make no noise."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TICK_S):
            await progressed.wait()


def _watch(core: NodeCore, limits: RunConfig) -> Callable[[], str | None]:
    """A question: which limit has been reached since now?"""
    parts = core.require_parts()
    statistics = parts.reporter.statistics
    rounds_before, started_at = statistics.rounds_committed, core.now()

    def reached() -> str | None:
        rounds = statistics.rounds_committed - rounds_before
        if limits.rounds is not None and rounds >= limits.rounds:
            return counted(rounds, "round")
        if limits.minutes is not None and core.now() - started_at >= 60 * limits.minutes:
            return f"{limits.minutes:g} minutes"
        tokens = parts.trainer.total.tokens
        if limits.tokens is not None and tokens >= limits.tokens:
            return f"{tokens} tokens"
        loss = _held_out_loss(parts)
        if limits.until_loss is not None and loss is not None and loss <= limits.until_loss:
            return f"held-out loss {loss:.4f}"
        return None

    return reached
