"""An optimiser of the user's that makes their training loop a member of a swarm.

Knows torch's interface of optimisers; refuses to know the swarm (`neuroswarm.node.own_loop`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from neuroswarm.errors import ConfigError
from neuroswarm.node.node import SwarmNode
from neuroswarm.training.loop_model import Evaluate


class SwarmOptimizer(torch.optim.Optimizer):
    """Any torch optimiser, whose steps are the inner steps of a swarm's node.

    Use it in place of the optimiser it wraps: with learning-rate schedulers, gradient
    accumulation, clipping, `GradScaler`, the `Trainer` of transformers, Lightning. Groups, state
    and hooks are the wrapped optimiser's own. One `step()` is one inner step.

    Args:
        optimizer: Over exactly the trainable parameters of the model that `create_swarm_node` was
            given, in any groups.
        node: Started, made with `model=` and without data, `enable_training=True`.
        tokens_per_step: What a step counts for if nobody says; at least 1. Peers weigh
            contributions by it under some rules, so it should mean the same at all.
        evaluate: Held-out loss of the model that it is given, in nats. It is called after each
            round on a thread of the node's while the loop waits in `step()`, in evaluation mode,
            without gradients. None: no held-out loss is reported.

    Raises:
        LifecycleError: the node is not started, or has an optimiser already.
        ConfigError: the parameters are others, the node trains by itself, or the optimiser's
            state cannot be put into a checkpoint or is not that of the one found.

    A node that was restarted with the same state folder has the model's parameters back before
    this, the optimiser's state (moments, counts, learning rates) after it. The place in the data
    is the loop's: skip `num_steps` batches.

    What an optimiser keeps as a second copy of the parameters (averages, look-ahead) does not
    move with them when a round ends.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        node: SwarmNode,
        *,
        tokens_per_step: int = 1,
        evaluate: Evaluate | None = None,
    ) -> None:
        # Not the base's constructor: it would make groups and a state besides those wrapped.
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(
                f"optimizer of type {type(optimizer).__name__} (an Optimizer of torch)"
            )
        if not isinstance(node, SwarmNode):
            raise ConfigError(f"node of type {type(node).__name__} (from create_swarm_node)")
        if evaluate is not None and not callable(evaluate):
            raise ConfigError(
                f"evaluate of type {type(evaluate).__name__} (a function of the model)"
            )
        if _whole("tokens_per_step", tokens_per_step) < 1:
            raise ConfigError(f"tokens_per_step out of range: {tokens_per_step} (at least 1)")
        self._inner = optimizer
        self._tokens_per_step = tokens_per_step
        self._noted_tokens = 0
        self._noted_losses: list[float] = []
        self._own_loop = node.take_loop()
        self._own_loop.attach(optimizer, evaluate)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimiser that is wrapped."""
        return self._inner

    @property
    def num_steps(self) -> int:
        """Steps taken so far, over all lives of the node: batches to skip after a restart."""
        return self._own_loop.num_steps

    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: float | Tensor | None = None,
        tokens: int | None = None,
    ) -> Any:
        """Update the parameters, then let the node do what it has to do with them.

        Waits for nothing on the network, and raises no trouble of the swarm's. Goes on working
        once the node has stopped or failed.

        Args:
            closure: As torch has it. Its result is the step's loss if none is given.
            loss: Training loss, for `/status` and what peers are told. Without any, and without
                a closure, `/status` shows null, and peers are told 0.
            tokens: Trained on since the last step; None: see `note` and `tokens_per_step`.

        Raises:
            LifecycleError: inside `paused()`.
            ConfigError: `tokens` is no whole number; or, after the first step, the optimiser's
                state has become such that no checkpoint can hold it.
        """
        tokens = None if tokens is None else _whole("tokens", tokens)

        def watched() -> Any:
            assert closure is not None, "else it is not called"
            with self._own_loop.reading():
                return closure()

        def update() -> Any:
            # Not every optimiser's step takes a closure.
            return self._inner.step() if closure is None else self._inner.step(watched)

        def read(result: Any) -> tuple[float | None, int]:
            return self._describe(loss if loss is not None else result, tokens)

        return self._own_loop.step(update, read)

    def note(self, *, loss: float | Tensor | None = None, tokens: int = 0) -> None:
        """Say what the next `step()` will have done, where somebody else calls it.

        Of several calls before one step, as in gradient accumulation, the tokens are added up and
        the losses averaged.
        """
        self._noted_tokens += _whole("tokens", tokens)
        if (value := _number(loss)) is not None:
            self._noted_losses.append(value)

    def paused(self) -> AbstractContextManager[None]:
        """Inside, the loop does not use the model, and the node need not wait for a step.

        For pauses longer than some steps: waiting for data or for a person. A loop that uses the
        model meanwhile, to evaluate it, must not say so: after 10 seconds without a step the
        node steps back by itself, and is back in the swarm with the next one.
        """
        return self._own_loop.paused()

    # -- what torch and what is built on it ask of an optimiser ----------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the wrapped optimiser."""
        return self._inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._inner.param_groups = groups

    @property
    def state(self) -> Any:
        """That of the wrapped optimiser."""
        return self._inner.state

    @state.setter
    def state(self, state: Any) -> None:
        self._inner.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """Those of the wrapped optimiser."""
        return self._inner.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self._inner.defaults = defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimiser does."""
        self._inner.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """That of the wrapped optimiser."""
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the wrapped optimiser another state; the model is not touched."""
        self._inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: all trainable parameters are there, and others are not the swarm's.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "a swarm trains the parameters that its model began with: none can be added "
            "(unfreeze them before create_swarm_node, at every peer)"
        )

    def __getattr__(self, name: str) -> Any:
        # The registries of hooks, which the base's methods ask for, but nothing else: whoever
        # asks for `_step_supports_amp_scaling` would talk past the wrapped optimiser.
        if name.startswith("_optimizer_"):
            return getattr(self._inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"SwarmOptimizer({self._inner!r})"

    def _describe(self, told: Any, tokens: int | None) -> tuple[float | None, int]:
        """Loss and tokens of the step that has just been taken; forgets what was noted of it."""
        losses, self._noted_losses = self._noted_losses, []
        noted, self._noted_tokens = self._noted_tokens, 0
        loss = _number(told)
        if loss is None and losses:
            loss = sum(losses) / len(losses)
        return loss, max(1, tokens or noted or self._tokens_per_step)


def _whole(name: str, value: object) -> int:
    """A count; ConfigError if it is none."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(f"{name}: {value!r} (a whole number)") from error


def _number(value: object) -> float | None:
    """A loss as a number, if it is one."""
    if isinstance(value, Tensor):
        return float(value.detach()) if value.numel() == 1 else None
    return float(value) if isinstance(value, int | float) else None
