"""The low-rank branch beside one layer: what it adds to the layer's output, and to its weight.

Knows which layers can have one. Refuses to know which of a model's layers get one.

Shapes: N = width of the layer's input (rows, of an embedding), M = of its output, R = rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from neuroswarm.models.lora_draw import bound_of, draw_a

NAME = "lora"
"""Of the branch among its layer's children: `blocks.0.attention.qkv.lora`."""


class Kind(Enum):
    """How a layer keeps its weight."""

    LINEAR = "linear"
    """`nn.Linear`: [M, N]."""
    CONV1D = "conv1d"
    """`Conv1D` of transformers, as in GPT-2: [N, M]."""
    EMBEDDING = "embedding"
    """`nn.Embedding`: [N, M]; its input is a row's number."""


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """What all nodes of a swarm must give alike, but for the dropout.

    Args:
        rank: R, at least 1.
        alpha: The branch counts alpha / R times.
        targets: Patterns of layers' names, see `choose_layers`; none for the default.
        train_a: Train A as well as B.
        dropout: Share of the branch's inputs that is zero in a step, in [0, 1).
        seed: Of A, in [0, 2^63).
    """

    rank: int
    alpha: float
    targets: tuple[str, ...] = ()
    train_a: bool = False
    dropout: float = 0.0
    seed: int = 0


class LoraBranch(nn.Module):
    """(alpha / R) B A x, beside a layer that computes W x.

    B is zero at first, so that nothing changes. A is drawn from the seed and the layer's name, the
    same on every machine, and stays as it is: only B is trained, sent and kept. Both are float32,
    whatever the layer's dtype.

    Args:
        layer: Of one of the kinds.
        layer_name: As the model names it.
        options: Rank, scale, seed.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; A frozen: FFA-LoRA, Sun et al. 2024,
        arXiv:2403.12313, section 4. The mean of B_i A over nodes is (mean of B_i) A, but the
        mean of B_i A_i is not (mean of B_i)(mean of A_i).
        Differs: A is drawn by `draw_a`; on embeddings too B is the one that is zero at first.
    """

    def __init__(self, layer: nn.Module, layer_name: str, options: LoraOptions) -> None:
        super().__init__()
        kind = kind_of(layer)
        assert kind is not None, "callers choose layers of a kind"
        self.kind = kind
        self.options = options
        self.scale = options.alpha / options.rank
        weight = weight_of(layer)
        num_in, num_out = weight.shape[::-1] if kind is Kind.LINEAR else weight.shape
        drawn = start_a(kind, layer_name, options.seed, (options.rank, num_in))
        self.A = nn.Parameter(drawn.to(weight.device), requires_grad=options.train_a)
        self.B = nn.Parameter(
            torch.zeros(num_out, options.rank, dtype=torch.float32, device=weight.device)
        )
        self.dropout = nn.Dropout(options.dropout)
        self.handle: RemovableHandle | None = None
        """Takes the branch off its layer's output."""

    @property
    def dimensions(self) -> Mapping[str, int | float | str]:
        """What its parameters' shapes do not show, for the architecture hash."""
        return {
            "adapter": f"lora {self.kind.value}",
            "alpha": self.options.alpha,
            "seed": "trained" if self.options.train_a else self.options.seed,
        }

    def forward(self, inputs: Tensor) -> Tensor:
        """What is added to the layer's output; inputs as the layer's, float32 out."""
        if self.kind is Kind.EMBEDDING:
            low = self.dropout(F.embedding(inputs, self.A.t()))
        else:
            low = F.linear(self.dropout(inputs.to(self.A.dtype)), self.A)
        return F.linear(low, self.B) * self.scale

    @torch.no_grad()
    def weight_delta(self) -> Tensor:
        """What it adds to the layer's weight: float32, in the weight's shape."""
        delta_MN = (self.B @ self.A) * self.scale
        return delta_MN if self.kind is Kind.LINEAR else delta_MN.t()


def start_a(kind: Kind, layer_name: str, seed: int, shape: tuple[int, int]) -> Tensor:
    """A of a layer as it is at first, [R, N]; see `draw_a`."""
    # A row's number picks one column of A, where a vector sums over all of them.
    bound = 1.0 if kind is Kind.EMBEDDING else bound_of(shape[1])
    return draw_a(layer_name, seed, shape, bound)


def kind_of(layer: nn.Module) -> Kind | None:
    """How a layer keeps its weight; None if it can have no branch.

    Raises:
        ValueError: it is lazy, so that its width is not known yet.
    """
    if isinstance(layer, nn.Linear):
        kind = Kind.LINEAR
    elif isinstance(layer, nn.Embedding) and layer.max_norm is None:
        kind = Kind.EMBEDDING
    elif _is_conv1d(layer):
        kind = Kind.CONV1D
    else:
        return None
    weight = weight_of(layer)
    if is_lazy(weight):
        raise ValueError("lazy parameter: call the model once before handing it over")
    return kind if weight.is_floating_point() else None


def weight_of(layer: nn.Module) -> Tensor:
    """The weight of a layer of some kind."""
    weight = layer.weight
    assert isinstance(weight, Tensor), "layers of all kinds have one"
    return weight


def put_on(layer: nn.Module, branch: LoraBranch) -> None:
    """Let a layer's output have the branch's added to it, whoever calls the layer."""
    layer.add_module(NAME, branch)
    branch.handle = layer.register_forward_hook(_add, with_kwargs=True)


def take_off(layer: nn.Module, branch: LoraBranch) -> None:
    """Leave the layer as it was before `put_on`."""
    assert branch.handle is not None, "put on before"
    branch.handle.remove()
    delattr(layer, NAME)


def _add(layer: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Tensor) -> Tensor:
    inputs = args[0] if args else next(iter(kwargs.values()))
    branch = layer.get_submodule(NAME)
    added: Tensor = branch(inputs)
    return output + added.to(output.dtype)


def _is_conv1d(layer: nn.Module) -> bool:
    """Whether it is transformers' matrix of GPT-2, without importing transformers."""
    kind = type(layer)
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")
