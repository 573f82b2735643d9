"""RWKV-7 "Goose", a recurrent language model that is trained in parallel over time.

Knows nothing of training or of other nodes; plain PyTorch, on any device.

Shapes: B = batch, T = tokens, D = model width, H = heads, K = D / H (head size), V = vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.models.rwkv7_layers import Block, BlockState, Uninitialised
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.rwkv7_start import initialise
from neuroswarm.models.wkv7 import Wkv, wkv_by_steps, wkv_in_chunks

_DECAYING = (".weight",)
"""Parameters that weight decay pulls on: matrices of this kind, as in the reference."""


@dataclass(frozen=True, slots=True)
class Rwkv7State:
    """What a model remembers of all tokens so far; its size does not grow with them.

    Args:
        blocks: One `BlockState` for each block.
    """

    blocks: tuple[BlockState, ...]

    def detach(self) -> Rwkv7State:
        """The same values without the history of gradients."""
        return Rwkv7State(tuple(block.detach() for block in self.blocks))


class Rwkv7(nn.Module):
    """RWKV-7 for language; names and shapes of the parameters are those of public checkpoints.

    Fragments: `emb`, `blocks.0` ... , `ln_out`, `head`. Adapters attach, as usual, to `receptance`,
    `key`, `value` and `output` of `att`, and to `key` and `value` of `ffn`.

    Args:
        config: Dimensions.
        seed: Of the initial parameters; the same seed gives the same parameters on one machine.
            (A swarm takes them from its genesis, so machines need not agree on them.)
        wkv: The recurrence over time, for sequences of more than one token. Both forms compute
            the same.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4; initial parameters as in the
        authors' training code (RWKV-LM, RWKV-v7/train_temp), see `rwkv7_start`.
        Differs: the first block has none of the parameters v0, v1, v2, which do nothing there
        (checkpoints have them; `rwkv7_weights` leaves them out). Everything is in the
        parameters' dtype but the recurrence, which is in float32 at least. The reference
        learns w0 twice as fast as the rest, and adds a small loss that keeps logits near 0;
        both belong to its training, not to the model.
    """

    def __init__(self, config: Rwkv7Config, *, seed: int = 0, wkv: Wkv = wkv_in_chunks) -> None:
        super().__init__()
        self.config = config
        self._wkv = wkv
        self.emb = Uninitialised.embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.ln_out = nn.LayerNorm(config.dim)
        self.head = Uninitialised.linear(config.dim, config.vocab_size)
        if not self.emb.weight.is_meta:
            initialise(self, config, torch.Generator().manual_seed(seed))

    @property
    def dimensions(self) -> Mapping[str, int | float | str]:
        """The configuration by name, for the architecture hash."""
        return {"model": "rwkv7", **dataclasses.asdict(self.config.resolved())}

    def decays(self, name: str) -> bool:
        """Whether weight decay should pull on a parameter: matrices named `weight` alone.

        The low-rank matrices, the shifts, gains and biases are left alone, as in the reference, and
        so are adapters that others have put on, whose names are none of this model.
        """
        parameter = dict(self.named_parameters()).get(name)
        return name.endswith(_DECAYING) and parameter is not None and parameter.dim() >= 2

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor | None = None) -> Tensor:
        """Predict the next token, from the beginning of a text.

        Args:
            inputs_BT: Tokens, int64 in [0, V), T >= 1 of any length.
            targets_BT: What follows each of them, the same shape; None to get logits.

        Returns:
            Mean cross-entropy in nats (a scalar), or logits [B, T, V] without targets.
        """
        logits_BTV, _ = self.read(inputs_BT)
        if targets_BT is None:
            return logits_BTV
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())

    def start(self, batch_size: int = 1) -> Rwkv7State:
        """The state before the first token: zeros, on the device of the parameters."""
        return Rwkv7State(tuple(block.start(batch_size) for block in self.blocks))  # type: ignore[operator]

    def read(self, inputs_BT: Tensor, state: Rwkv7State | None = None) -> tuple[Tensor, Rwkv7State]:
        """Read on from a state: a whole text at once, or token by token to generate.

        A text may be cut anywhere; what is read from the state of the first part on gives the
        same logits as the whole, up to rounding.

        Args:
            inputs_BT: Tokens, int64 in [0, V), T >= 1.
            state: What was read before, of the same B; None at the beginning. Not changed.

        Returns:
            Logits [B, T, V] in the parameters' dtype, and the state after the last token.

        Raises:
            ValueError: `state` is of another batch size or number of blocks.

        Cost: the same for each token, however many came before.
        """
        state = self.start(inputs_BT.shape[0]) if state is None else state
        _check(state, inputs_BT.shape[0], len(self.blocks))
        wkv = self._wkv if inputs_BT.shape[1] > 1 else wkv_by_steps
        x_BTD = self.emb(inputs_BT)
        v_first_BTD: Tensor | None = None
        after: list[BlockState] = []
        for block, before in zip(self.blocks, state.blocks, strict=True):
            x_BTD, v_first_BTD, following = block(x_BTD, v_first_BTD, before, wkv)
            after.append(following)
        logits_BTV: Tensor = self.head(self.ln_out(x_BTD))
        return logits_BTV, Rwkv7State(tuple(after))


def count_parameters(config: Rwkv7Config) -> int:
    """How many parameters a model has, without making them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Rwkv7(config).parameters())


def _check(state: Rwkv7State, batch_size: int, num_blocks: int) -> None:
    found: Sequence[int] = [len(block.att_shift) for block in state.blocks]
    if list(found) != [batch_size] * num_blocks:
        raise ValueError(
            f"state of {len(found)} blocks for batches of {found[:1]} "
            f"(needs {num_blocks} blocks for batches of {batch_size})"
        )
