"""The inner optimiser: AdamW with clipping and warm-up, and its state as plain tensors.

Knows nothing of data, losses and rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from neuroswarm.config.sections import TrainingConfig
from neuroswarm.errors import CheckpointError
from neuroswarm.models.flat_copy import copy_together

BETAS = (0.9, 0.99)

_FUSED_DEVICES = {"cpu", "cuda", "mps"}


@runtime_checkable
class ChoosesDecay(Protocol):
    """A model that says itself which of its parameters weight decay should pull on."""

    def decays(self, name: str) -> bool:
        """Whether it should pull on the parameter of this name."""
        ...


class InnerOptimizer:
    """AdamW over named parameters; matrices decay, gains and biases do not.

    Args:
        parameters: Names and parameters, each once; all on one device.
        config: Learning rate, warm-up, weight decay and clipping.
        chooser: Says what decays instead: the model, if it is a `ChoosesDecay`.

    Source: Loshchilov and Hutter 2019, arXiv:1711.05101.
        Differs: the learning rate rises linearly over the first `warmup_steps` updates and then
        stays; a gradient norm above `clip_norm` is scaled down to it before the update.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        config: TrainingConfig,
        chooser: object = None,
    ) -> None:
        self._parameters = dict(parameters)
        self._config = config
        decaying: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in self._parameters.items():
            if isinstance(chooser, ChoosesDecay):
                decays = chooser.decays(name)
            else:
                decays = parameter.dim() >= 2
            (decaying if decays else others).append(parameter)
        groups = [
            {"params": group, "weight_decay": decay}
            for group, decay in ((decaying, config.weight_decay), (others, 0.0))
            if group
        ]
        device = next(iter(self._parameters.values())).device.type
        self._adamw = torch.optim.AdamW(
            groups, lr=config.lr, betas=BETAS, fused=device in _FUSED_DEVICES
        )

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def clip(self) -> float:
        """Scale the gradients to norm `clip_norm` if theirs is larger; return theirs."""
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), self._config.clip_norm)
        return float(norm)

    def update(self, num_updates: int) -> None:
        """Take one step; `num_updates` were taken before (it decides the learning rate)."""
        warmup = self._config.warmup_steps
        lr = self._config.lr * min(1.0, (num_updates + 1) / max(1, warmup))
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()

    def tensors(self) -> dict[str, Tensor]:
        """Copies of the moments and step counts, by `<kind>.<parameter>`; CPU."""
        return copy_together(
            {
                f"{kind}.{name}": value
                for name, parameter in self._parameters.items()
                for kind, value in self._adamw.state.get(parameter, {}).items()
            }
        )

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` returned, as copies; a parameter left out starts anew.

        Raises:
            CheckpointError: a name or shape does not fit the parameters.
        """
        state: dict[Tensor, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            kind, _, name = key.partition(".")
            parameter = self._parameters.get(name)
            if parameter is None or value.shape not in (parameter.shape, torch.Size()):
                raise CheckpointError(
                    f"optimiser state does not fit the model: {key} {tuple(value.shape)}"
                )
            state.setdefault(parameter, {})[kind] = value.detach().clone().to(parameter.device)
        self._adamw.state.clear()
        self._adamw.state.update(state)
