"""A model and a text so small that whole nodes train on them in milliseconds.

Knows nothing of nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCABULARY = 32


class TinyModel(nn.Module):
    """Predicts the next of 32 tokens from the one before; about 3,000 parameters."""

    def __init__(self, seed: int = 0, *, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.hidden = nn.Linear(16, width)
        self.head = nn.Linear(width, VOCABULARY)
        source = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.1, generator=source)

    def forward(self, inputs_BT: Tensor) -> Tensor:
        """Logits [B, T, 32] of what follows each token."""
        result: Tensor = self.head(torch.tanh(self.hidden(self.embedding(inputs_BT))))
        return result


def tiny_text(num_tokens: int = 4096) -> Tensor:
    """Tokens [num_tokens] that mostly follow from the one before, so that there is a loss to win.

    A walk: x -> 5 x + 3 mod 32, with every eighth token drawn at random from a fixed seed.
    """
    draws = torch.randint(VOCABULARY, (num_tokens,), generator=torch.Generator().manual_seed(1))
    tokens = [0]
    for index in range(1, num_tokens):
        known = (5 * tokens[-1] + 3) % VOCABULARY
        tokens.append(int(draws[index]) if index % 8 == 0 else known)
    return torch.tensor(tokens)
