"""A model of any size whose steps are cheap: large tables of which a batch reads a few rows.

Knows nothing of nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCABULARY = 32
WIDTH = 64
NUM_TABLES = 8


class CheapModel(nn.Module):
    """Predicts the next of 32 tokens from the one before; about `num_params` parameters.

    Each table is a fragment. A state of it is as large as that of a real model, and changes in a
    few rows only, which neither transfer nor hashing make use of.
    """

    def __init__(self, num_params: int) -> None:
        super().__init__()
        rows = max(1, num_params // (NUM_TABLES * WIDTH * VOCABULARY))
        self.tables = nn.ModuleList(
            nn.Embedding(rows * VOCABULARY, WIDTH, _weight=_values(rows * VOCABULARY, k))
            for k in range(NUM_TABLES)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)
        with torch.no_grad():
            self.head.weight.copy_(_values(VOCABULARY, NUM_TABLES))
            self.head.bias.zero_()
        self._rows = rows

    def forward(self, inputs_BT: Tensor) -> Tensor:
        """Logits [B, T, 32] of what follows each token."""
        read: Tensor = sum(
            (table(inputs_BT * self._rows) for table in self.tables), torch.zeros(())
        )
        result: Tensor = self.head(torch.tanh(read))
        return result


def _values(num_rows: int, seed: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, WIDTH, generator=source).mul_(0.1)
