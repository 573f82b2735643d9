"""The inner optimiser: AdamW, or Muon for the matrices inside; its state as plain tensors.

Knows nothing of data, losses, rounds and of how the learning rate is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from neuroswarm.config.legality import OptimizerName
from neuroswarm.config.training import TrainingConfig
from neuroswarm.errors import CheckpointError
from neuroswarm.models.flat_copy import copy_together
from neuroswarm.training.muon import Muon

BETAS = (0.9, 0.99)

STATE_PREFIXES = ("adamw.", "muon.")
"""Of the names of an optimiser's tensors."""

_MOMENTUM = "muon.momentum."
_FUSED_DEVICES = {"cpu", "cuda", "mps"}


@runtime_checkable
class ChoosesDecay(Protocol):
    """A model that says itself which of its parameters weight decay should pull on."""

    def decays(self, name: str) -> bool:
        """Whether it should pull on the parameter of this name."""
        ...


class InnerOptimizer:
    """AdamW over named parameters; matrices decay, gains and biases do not.

    As `muon`, the hidden matrices are Muon's (see `hidden_matrices`), all else AdamW's.

    Args:
        parameters: Names and parameters, each once, in the model's order; all on one device.
        config: Weight decay and clipping.
        model: Whose they are; says what decays instead, if it is a `ChoosesDecay`.
        name: Which optimiser.

    Source: Loshchilov and Hutter 2019, arXiv:1711.05101; for Muon see there, and as an inner
        optimiser Therien et al. 2025, arXiv:2505.23725.
        Differs: a gradient norm above `clip_norm` is scaled down to it before the update.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        config: TrainingConfig,
        model: nn.Module,
        name: OptimizerName = "adamw",
    ) -> None:
        self.name = name
        self._parameters = dict(parameters)
        self._config = config
        self._hidden = hidden_matrices(model, parameters) if name == "muon" else frozenset()
        hidden = [self._parameters[named] for named in sorted(self._hidden)]
        self._muon = Muon(hidden, config.weight_decay)
        decaying: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for named, parameter in self._parameters.items():
            if named in self._hidden:
                continue
            if isinstance(model, ChoosesDecay):
                decays = model.decays(named)
            else:
                decays = parameter.dim() >= 2
            (decaying if decays else others).append(parameter)
        groups = [
            {"params": group, "weight_decay": decay}
            for group, decay in ((decaying, config.weight_decay), (others, 0.0))
            if group
        ]
        device = next(iter(self._parameters.values())).device.type
        self._adamw = torch.optim.AdamW(groups, betas=BETAS, fused=device in _FUSED_DEVICES)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def clip(self) -> float:
        """Scale the gradients to norm `clip_norm` if theirs is larger; return theirs."""
        norm = nn.utils.clip_grad_norm_(self._parameters.values(), self._config.clip_norm)
        return float(norm)

    def update(self, lr: float) -> None:
        """Take one step with that learning rate."""
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._muon.step(lr)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of moments and step counts, by `<optimiser>.<kind>.<parameter>`; CPU."""
        found: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            for kind, value in self._adamw.state.get(parameter, {}).items():
                found[f"adamw.{kind}.{name}"] = value
            if parameter in self._muon.momenta:
                found[_MOMENTUM + name] = self._muon.momenta[parameter]
        return copy_together(found)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` returned, as copies; a parameter left out starts anew.

        Raises:
            CheckpointError: a name or shape does not fit the parameters.
        """
        adamw: dict[Tensor, dict[str, Tensor]] = {}
        momenta: dict[nn.Parameter, Tensor] = {}
        for key, value in tensors.items():
            optimizer, kind, name = (*key.split(".", 2), "", "")[:3]
            parameter = self._parameters.get(name)
            owner = "muon" if name in self._hidden else "adamw"
            shapes = () if parameter is None else (parameter.shape, torch.Size())
            if parameter is None or optimizer != owner or value.shape not in shapes:
                raise CheckpointError(
                    f"optimiser state does not fit the model: {key} {tuple(value.shape)}"
                )
            copy = value.detach().clone().to(parameter.device)
            if optimizer == "muon":
                momenta[parameter] = copy
            else:
                adamw.setdefault(parameter, {})[kind] = copy
        self._adamw.state.clear()
        self._adamw.state.update(adamw)
        self._muon.momenta = momenta


def hidden_matrices(
    model: nn.Module, parameters: Sequence[tuple[str, nn.Parameter]]
) -> frozenset[str]:
    """Names of the parameters that Muon is meant for: matrices that neither embed nor predict.

    Those of `nn.Embedding` and the last matrix of the model, its head, are left out.

    Args:
        model: Whose parameters they are.
        parameters: The trainable ones in the model's order.
    """
    embeddings = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    matrices = [(name, p) for name, p in parameters if p.dim() == 2]
    return frozenset(name for name, p in matrices[:-1] if id(p) not in embeddings)
