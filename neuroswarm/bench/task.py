"""What the peers of a benchmark train: a small byte model, each on a text of its own.

Knows model, text and inner optimiser; refuses to know rounds and attackers.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from neuroswarm.clock import SystemClock
from neuroswarm.config.training import TrainingConfig
from neuroswarm.corpus.loading import read_text
from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.tokens import FlatTokens, split_tokens
from neuroswarm.diloco.rules import Rules
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.loss import LossFunction, next_token_loss
from neuroswarm.training.trainer import Trainer

MAX_PARTS = 8
"""The training text is dealt out to so many peers, whether they take part or not."""

PIECE_BYTES = 16 * 1024
"""Texts are dealt out in pieces of that size, in turn: disjoint, but of one kind."""

VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Task:
    """Sizes of the model and of a run; JSON values.

    The defaults take about ten seconds on one core, and end far below the loss of a model that
    only knows how often each byte occurs (3.2 nats).
    """

    dim: int = 32
    num_layers: int = 1
    num_heads: int = 2
    context: int = 16
    batch_size: int = 8
    lr: float = 3e-3
    warmup_steps: int = 20
    inner_steps: int = 20
    """H, inner steps of each peer in a round."""
    rounds: int = 20
    last_rounds: int = 6
    """Rounds at the end whose held-out losses are averaged."""
    eval_batches: int = 8
    eval_batch_size: int = 128

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return dataclasses.asdict(self)

    def with_rounds(self, inner_steps: int, rounds: int) -> Task:
        """The same with rounds of another length."""
        return dataclasses.replace(self, inner_steps=inner_steps, rounds=rounds)

    def pace(self, rules: Rules) -> Rules:
        """Those rules with this task's rounds, learning rate and warm-up."""
        return rules.model_copy(
            update={
                "inner_steps": self.inner_steps,
                "inner_lr": self.lr,
                "warmup_steps": self.warmup_steps,
            }
        )

    def training(self, seed: int) -> TrainingConfig:
        """The inner optimiser's settings."""
        return TrainingConfig(
            lr=self.lr,
            warmup_steps=self.warmup_steps,
            batch_size=self.batch_size,
            context=self.context,
            seed=seed,
        )

    def model(self, seed: int) -> Transformer:
        """The repository's transformer in small, with the initial parameters of a seed."""
        dimensions = TransformerConfig(
            dim=self.dim,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            context=self.context,
            vocab_size=VOCABULARY,
        )
        return Transformer(dimensions, seed=seed)


@dataclass(frozen=True, slots=True)
class Text:
    """A text whose training part is dealt out without overlap.

    Args:
        whole: All tokens, uint8; the held-out part is the same for everyone.
        parts: Tokens of each peer, disjoint, none of them held out.
    """

    whole: Tensor
    parts: tuple[Tensor, ...]

    @classmethod
    def deal(cls, tokens: Tensor, context: int) -> Text:
        """Deal out the training ranges of a text in pieces, in turn."""
        split = split_tokens(tokens.numel(), context + 1)
        train = torch.cat([tokens[start:end] for start, end in split.train])
        pieces = torch.split(train, PIECE_BYTES)
        parts = tuple(torch.cat(pieces[k::MAX_PARTS]) for k in range(MAX_PARTS))
        return cls(tokens, parts)


class PeerBatches:
    """A peer's own training text, and the held-out text that is common to all."""

    def __init__(self, text: Text, part: int, task: Task, seed: int) -> None:
        self._train = WindowSampler(
            FlatTokens(text.parts[part]),
            context=task.context,
            batch_size=task.batch_size,
            seed=seed,
        )
        self._held_out = WindowSampler(
            FlatTokens(text.whole),
            context=task.context,
            batch_size=task.eval_batch_size,
            seed=seed,
        )

    def train(self, index: int) -> Batch:
        """Training batch number `index`."""
        return self._train.train(index)

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Held-out batch `index` of `num_batches`, the same for all peers."""
        return self._held_out.held_out(index, num_batches)


def make_trainer(task: Task, text: Text, part: int, seed: int, *, flips: bool = False) -> Trainer:
    """A trainer of part number `part` of the text; with `flips`, on wrong labels."""
    loss: LossFunction = flipped_loss if flips else next_token_loss
    return Trainer(
        task.model(seed),
        PeerBatches(text, part, task, seed),
        task.training(seed),
        clock=SystemClock(),
        loss_fn=loss,
    )


def flipped_loss(model: nn.Module, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """The loss of label flipping: byte b is taught as 255 - b."""
    return next_token_loss(model, inputs_BT, VOCABULARY - 1 - targets_BT)


@functools.lru_cache(maxsize=1)
def load_text(path: Path | None, context: int) -> Text:
    """The text of a path, or the built-in one (this Python's standard library)."""
    logger = logging.getLogger("neuroswarm.corpus.loading")
    level = logger.level
    logger.setLevel(logging.ERROR)  # that it takes the first bytes only is what is meant here
    try:
        return Text.deal(read_text(path), context)
    finally:
        logger.setLevel(level)
