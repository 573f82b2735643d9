"""How any module becomes a scalar loss.

Refuses to know of optimisers and data.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.errors import ComputeError, ConfigError

LossFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(model, inputs [B, T] int64, targets [B, T] int64) -> scalar loss that can be differentiated."""


def next_token_loss(model: nn.Module, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Loss of a language model, whichever of two forms its `forward` has.

    - `forward(inputs, targets)`: a second positional parameter without a default, or with a name
      that starts with "target". Its scalar result is the loss.
    - `forward(inputs)`: returns logits [B, T, V], or an object that has them as `logits`, as models
      of Hugging Face do; the loss is their mean cross-entropy in nats. (Such models can make a
      loss of their own, but of labels that are not shifted yet.)

    A two-parameter form may also return logits. For anything else give a `LossFunction`.

    Raises:
        ComputeError: the result is neither a scalar nor logits that fit the targets.
        ConfigError: the logits are of fewer tokens than the data has.
    """
    names = inspect.signature(model.forward).parameters
    plain = {"use_cache": False} if "use_cache" in names else {}  # a cache is for generation
    inputs = (inputs_BT, targets_BT) if takes_targets(model) else (inputs_BT,)
    result = model(*inputs, **plain)
    result = getattr(result, "logits", result)
    if isinstance(result, Tensor):
        if result.dim() == 0:
            return result
        if result.dim() == 3 and result.shape[:2] == targets_BT.shape:
            _require_width(model, result.shape[2], targets_BT)
            return F.cross_entropy(result.flatten(0, 1), targets_BT.flatten())
    found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
    raise ComputeError(
        f"{type(model).__name__} returned {found} (needs a scalar loss or logits [B, T, V]; "
        "otherwise give loss_fn)"
    )


def _require_width(model: nn.Module, width: int, targets_BT: Tensor) -> None:
    """Torch would call it an index out of range, or kill the accelerator's context."""
    highest = int(targets_BT.max())
    if highest >= width:
        raise ConfigError(
            f"training.model: {type(model).__name__} gives logits of {width} tokens, and the data "
            f"has token {highest}: make it for the vocabulary of the data (a factory with a "
            "parameter vocab_size is given its size)"
        )


def takes_targets(model: nn.Module) -> bool:
    """Whether `forward` takes the targets as its second positional argument."""
    positional = [
        parameter
        for parameter in inspect.signature(model.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name.startswith("target")
