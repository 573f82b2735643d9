"""Sets a model's parameters from named tensors of a file, all of them or none.

Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_weights import load_public

MAX_NAMED = 5
"""Names that an error lists at most."""


@torch.no_grad()
def load_base(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set every parameter of a model, and the persistent buffers that are given.

    Args:
        model: Its own parameters' names are those of the file; `Rwkv7` takes public checkpoints.
        tensors: By name, any floating dtype; cast to the model's. A parameter that the model uses
            under several names may be given under any of them.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs; nothing was changed.
    """
    if isinstance(model, Rwkv7):
        load_public(model, tensors)
        return
    state = model.state_dict(keep_vars=True)
    given = {id(state[name]) for name in tensors if name in state}
    wanted = [name for name, parameter in model.named_parameters() if id(parameter) not in given]
    _refuse("missing", wanted)
    _refuse("unknown", (name for name in tensors if name not in state))
    _refuse(
        "of another shape",
        (
            f"{name} {tuple(tensor.shape)} (the model's: {tuple(state[name].shape)})"
            for name, tensor in tensors.items()
            if tensor.shape != state[name].shape
        ),
    )
    for name, tensor in tensors.items():
        state[name].copy_(tensor)


def _refuse(what: str, names: Iterable[str]) -> None:
    found = list(names)
    if found:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        raise ValueError(f"parameters {what}: {', '.join(found[:MAX_NAMED])}{more}")
