"""A shard in memory."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class TensorShard:
    """Tokens of one shard; what `ShardTokens` needs."""

    tokens: Tensor

    @property
    def num_tokens(self) -> int:
        return self.tokens.numel()

    def read(self, start: int, length: int) -> Tensor:
        return self.tokens[start : start + length].long()
