"""Muon: momentum made orthogonal, for the matrices inside a model.

Knows nothing of rounds, learning rate schedules and of which parameters it is given.

Shapes: M matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

NUM_ITERATIONS = 5
MOMENTUM = 0.95
RMS = 0.2
"""Root mean square of an update's entries, about AdamW's: one learning rate serves both."""

_A, _B, _C = 3.4445, -4.7750, 2.0315
_TINY = 1e-18
"""Matrices are not scaled up from below this norm."""


@torch.no_grad()
def orthogonalise(matrices_MRC: Tensor) -> Tensor:
    """Bring all singular values near 1 (0.7 to 1.2) and keep the singular vectors.

    Args:
        matrices_MRC: Shape [M, R, C], float32; not written. A matrix of zeros stays one.

    Returns:
        The same shape and dtype.

    Cost: 5 iterations of 3 matrix products each, of the smaller side:
        10 min(R, C)^2 (2 max(R, C) + min(R, C)) multiplications and additions a matrix.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"
        (the quintic Newton-Schulz iteration and its coefficients).
        Differs: in float32, since processors without bfloat16 emulate it slowly; matrices of one
        shape are worked on together.
    """
    x = matrices_MRC
    is_tall = x.shape[-2] > x.shape[-1]
    if is_tall:
        x = x.mT
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_(min=_TINY)
    for _ in range(NUM_ITERATIONS):
        gram = torch.bmm(x, x.mT)
        mixed = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)
        x = torch.baddbmm(x, mixed, x, beta=_A)
    return x.mT if is_tall else x


class Muon:
    """Takes steps of equal spectral size: the orthogonalised Nesterov momentum of each matrix.

    m' = mu m + g; u = orthogonalise(g + mu m'); w' = w (1 - lr decay) - lr 0.2 sqrt(max(R, C)) u.

    Args:
        parameters: Matrices, each once; on one device.
        weight_decay: Decoupled, as AdamW's.

    Source: Jordan et al. 2024 (as above); Liu et al. 2025, arXiv:2502.16982, section 2.2 (weight
        decay, and updates as large as AdamW's).
        Differs: the momentum is a sum of gradients, not a mean (the direction is the same).
    """

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float) -> None:
        self.momenta: dict[nn.Parameter, Tensor] = {}
        """Of each matrix that had a step, of its shape and dtype."""
        self._parameters = list(parameters)
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step with that learning rate; matrices without a gradient stay."""
        by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for parameter in self._parameters:
            if parameter.grad is not None:
                by_shape.setdefault(parameter.shape, []).append(parameter)
        for shape, group in by_shape.items():
            size = lr * RMS * max(shape) ** 0.5
            for parameter, update in zip(group, self._updates(group), strict=True):
                parameter.mul_(1.0 - lr * self._weight_decay)
                parameter.add_(update.to(parameter.dtype), alpha=-size)

    def _updates(self, group: Sequence[nn.Parameter]) -> Tensor:
        """Orthogonal directions of matrices of one shape, [M, R, C]."""
        ahead = []
        for parameter in group:
            gradient = parameter.grad
            assert gradient is not None, "step chose those that have one"
            held = self.momenta.setdefault(parameter, torch.zeros_like(parameter))
            held.mul_(MOMENTUM).add_(gradient)
            ahead.append(torch.add(gradient, held, alpha=MOMENTUM).float())
        return orthogonalise(torch.stack(ahead))
