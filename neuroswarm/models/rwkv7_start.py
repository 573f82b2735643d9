"""The values that the parameters of an RWKV-7 model start with.

Knows nothing of what is computed with them.

Shapes: D = model width, K = head size, V = vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from neuroswarm.models.rwkv7_shape import Rwkv7Config

EMBEDDING_RANGE = 1e-4
LOW_RANK_GAIN = 0.1

_SHIFT_POWERS = {"x_r": 0.2, "x_w": 0.9, "x_k": 0.7, "x_v": 0.7, "x_a": 0.9, "x_g": 0.2}


@torch.no_grad()
def initialise(model: nn.Module, config: Rwkv7Config, generator: torch.Generator) -> None:
    """Give all parameters of an `Rwkv7` their first values.

    Args:
        model: On the CPU, parameters in any state.
        config: Its dimensions.
        generator: On the CPU; parameters draw from it in the order of their names.

    Cost: a QR decomposition of every large matrix; the larger part of the time of making a model.

    Source: RWKV-LM, RWKV-v7/train_temp/src/model.py (constructors and `generate_init_weight`).
        Differs: a model of one block takes the depth of a first block, where the reference
        divides by zero.
    """
    for name, parameter in model.named_parameters():
        block, _, local = name.removeprefix("blocks.").partition(".")
        if name == "emb.weight":
            parameter.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)
        elif name == "head.weight":
            gain = 0.5 * math.sqrt(max(1.0, config.vocab_size / config.dim))
            nn.init.orthogonal_(parameter, gain=gain, generator=generator)
        elif name.startswith("blocks."):
            _initialise(local, parameter, config, int(block), generator)


def _initialise(
    name: str, parameter: Tensor, config: Rwkv7Config, layer: int, generator: torch.Generator
) -> None:
    """One parameter of a block; norms but that of the heads keep their ones and zeros."""
    module, _, local = name.partition(".")
    rest = 1.0 - layer / config.num_layers
    if name == "ffn.x_k":
        parameter.copy_(_shift(config.dim, rest**4))
    elif local in _SHIFT_POWERS:
        parameter.copy_(_shift(config.dim, _SHIFT_POWERS[local] * rest))
    elif name in ("att.receptance.weight", "att.value.weight", "ffn.key.weight"):
        nn.init.orthogonal_(parameter, generator=generator)
    elif name == "att.key.weight":
        nn.init.orthogonal_(parameter, gain=0.1, generator=generator)
    elif name in ("att.output.weight", "ffn.value.weight") or local in ("w1", "a1", "v1", "g1"):
        parameter.zero_()
    elif local in ("w2", "a2", "v2", "g2"):
        gain = LOW_RANK_GAIN * math.sqrt(max(1.0, parameter.shape[0] / parameter.shape[1]))
        nn.init.orthogonal_(parameter, gain=gain, generator=generator)
    elif name == "att.ln_x.weight":
        parameter.fill_(((1 + layer) / config.num_layers) ** 0.7)
    elif module == "att" and "." not in local:
        parameter.copy_(_bias(local, config, layer).view_as(parameter))


def _shift(dim: int, power: float) -> Tensor:
    """Shares of the token before: large for the first channels, small for the last. Float64 [D]."""
    channel = torch.arange(dim, dtype=torch.float64)
    return torch.ones(dim, dtype=torch.float64).sub(torch.pow(channel / dim, power))


def _bias(name: str, config: Rwkv7Config, layer: int) -> Tensor:
    """Decays, rates and gains by channel: float64 [D]."""
    dim, size = config.dim, config.head_size
    channel = torch.arange(dim, dtype=torch.float64)
    linear = channel / (dim - 1) - 0.5
    zigzag = ((channel % size) - (size - 1) / 2) / ((size - 1) / 2)
    zigzag = zigzag * zigzag.abs()
    depth = layer / max(1, config.num_layers - 1)
    slow_to_fast = -6.0 + 6.0 * torch.pow(channel / (dim - 1), 1.0 + depth**0.3)
    biases: dict[str, Tensor] = {
        "w0": slow_to_fast + 0.5 + zigzag * 2.5,
        "a0": -0.19 + zigzag * 0.3 + linear * 0.4,
        "v0": 0.73 - linear * 0.4,
        "k_k": 0.71 - linear * 0.1,
        "k_a": torch.full_like(channel, 1.02),
        "r_k": torch.full_like(channel, -0.04),
    }
    return biases[name]
