"""Public RWKV-7 checkpoints as models: which dimensions they have, and their values.

Knows nothing of files: callers read them, with `safetensors` or with `weights_only=True`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config

_UNUSED = ("blocks.0.att.v0", "blocks.0.att.v1", "blocks.0.att.v2")
"""What public checkpoints have and no implementation reads."""

_LAYER = re.compile(r"blocks\.(\d+)\.")
MAX_NAMED = 5
"""Names that an error lists at most."""


def shape_of(tensors: Mapping[str, Tensor]) -> Rwkv7Config:
    """The dimensions of the model that a checkpoint is of.

    Args:
        tensors: By their public names, such as `blocks.0.att.r_k`; only shapes are looked at.

    Raises:
        ValueError: it is no checkpoint of RWKV-7.
    """
    layers = [int(match[1]) for name in tensors if (match := _LAYER.match(name))]
    try:
        vocab_size, dim = tensors["emb.weight"].shape
        ranks = {name: tensors[f"blocks.0.att.{name}1"].shape[-1] for name in ("w", "a", "g")}
        # Where there is only one block, nothing says the rank of its values.
        value = tensors.get("blocks.1.att.v1", tensors.get("blocks.0.att.v1"))
        return Rwkv7Config(
            dim=dim,
            num_layers=max(layers) + 1,
            head_size=tensors["blocks.0.att.r_k"].shape[-1],
            vocab_size=vocab_size,
            hidden=tensors["blocks.0.ffn.key.weight"].shape[0],
            decay_rank=ranks["w"],
            rate_rank=ranks["a"],
            value_rank=0 if value is None else value.shape[-1],
            gate_rank=ranks["g"],
        )
    except (KeyError, IndexError) as error:
        raise ValueError(f"no checkpoint of RWKV-7: {error} is not there") from error


@torch.no_grad()
def load_public(model: Rwkv7, tensors: Mapping[str, Tensor]) -> None:
    """Set a model's parameters from a public checkpoint.

    Args:
        model: Of the same dimensions (`shape_of`).
        tensors: By their public names; any floating dtype. Dimensions of 1 may be missing, as in
            some conversions. v0, v1 and v2 of the first block, which do nothing, are left out.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs; nothing was changed.
    """
    parameters = dict(model.named_parameters())
    given = {name: tensor for name, tensor in tensors.items() if name not in _UNUSED}
    _refuse("missing", [name for name in parameters if name not in given])
    _refuse("unknown", [name for name in given if name not in parameters])
    _refuse(
        "of another shape",
        [
            f"{name} {tuple(given[name].shape)}"
            for name, parameter in parameters.items()
            if given[name].squeeze().shape != parameter.squeeze().shape
        ],
    )
    for name, parameter in parameters.items():
        parameter.copy_(given[name].reshape(parameter.shape))


def _refuse(what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        raise ValueError(f"parameters {what}: {', '.join(names[:MAX_NAMED])}{more}")
