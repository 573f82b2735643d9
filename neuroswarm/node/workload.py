"""What a node trains: model, data and the device, made from settings or handed in.

Knows nothing of peers or rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.corpus.loading import BYTE_VOCABULARY, Corpus, load_corpus
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.memory import is_out_of_memory
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.loss import next_token_loss
from neuroswarm.training.trainer import Batches, Trainer
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

LossFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """What the user brings; what is None comes from the settings."""

    model: nn.Module | None = None
    """Any module that `loss_fn` understands. None: the built-in one of `training.model`."""
    data: Path | Tensor | Batches | None = None
    """Text file or folder, token ids [num_tokens], or an object that makes batches.
    None: `data.path`, or this Python's standard library."""
    loss_fn: LossFunction = next_token_loss

    def make_trainer(self, config: SwarmNodeConfig, node_id: NodeId, clock: Clock) -> Trainer:
        """Build model and data and put them together. Blocks; takes seconds for large texts.

        Raises:
            DataError: there is no text to train on.
            ConfigError: the device is not there, or the data does not fit the settings.
        """
        batches, vocab_size = self._batches(config, node_id)
        with _naming_what_does_not_fit():
            model = self.model if self.model is not None else _build_model(config, vocab_size)
            model.to(choose_device(config.resources.device))
        return Trainer(
            model,
            batches,
            config.training,
            clock=clock,
            loss_fn=self.loss_fn,
        )

    def _batches(self, config: SwarmNodeConfig, node_id: NodeId) -> tuple[Batches, int]:
        """What to train on, and the vocabulary that the built-in model needs for it."""
        training = config.training
        if isinstance(self.data, Path) or self.data is None:
            path = self.data or config.data.path
            corpus = load_corpus(path, max_bytes=config.data.max_bytes)
        elif isinstance(self.data, Tensor):
            corpus = Corpus(FlatTokens(self.data), "tokens handed in")
        elif not hasattr(self.data, "train"):
            raise ConfigError(
                f"data of type {type(self.data).__name__} is neither a path, a tensor of integers "
                "nor an object that makes batches"
            )
        else:
            return self.data, BYTE_VOCABULARY
        sampler: WindowSampler = corpus.sampler(
            context=training.context,
            batch_size=training.batch_size,
            seed=training.seed,
            node_id=node_id,
        )
        doing = "training" if config.run.training else "measuring the held-out loss"
        logger.info("%s on %s: %d tokens", doing, corpus.source, corpus.tokens.num_tokens)
        return sampler, corpus.vocab_size


def make_genesis(
    config: SwarmNodeConfig, trainer: Trainer, params: tuple[Tensor, ...]
) -> OuterState:
    """The outer state of round 0 of a new swarm with this node's rules and parameters."""
    fragments = trainer.fragments
    return genesis(
        make_rules(config), fragments.architecture, zip(fragments.names, params, strict=True)
    )


def make_rules(config: SwarmNodeConfig) -> Rules:
    """The rules that this node's settings would give a new swarm."""
    diloco, aggregation, training = config.diloco, config.aggregation, config.training
    return Rules(
        aggregation_method=aggregation.method,
        krum_f=aggregation.krum_f,
        krum_neighbours=aggregation.krum_neighbours,
        trimmed_mean_beta=aggregation.trimmed_mean_beta,
        norm_scaling=aggregation.norm_scaling,
        use_nnm=aggregation.use_nnm,
        bucket_size=aggregation.bucket_size,
        cosine_threshold=aggregation.cosine_threshold,
        magnitude_ratio_threshold=aggregation.magnitude_ratio_threshold,
        codec=diloco.codec,
        codec_block=diloco.codec_block,
        topk_chunk=diloco.topk_chunk,
        topk_kept=diloco.topk_kept,
        contribution_momentum=diloco.contribution_momentum,
        outer_lr=diloco.outer_lr,
        outer_momentum=diloco.outer_momentum,
        auto_scale=diloco.auto_scale,
        inner_steps=diloco.inner_steps,
        inner_steps_min=diloco.inner_steps_min,
        inner_steps_max=diloco.inner_steps_max,
        inner_optimizer=training.optimizer,
        inner_lr=training.lr,
        warmup_steps=training.warmup_steps,
        lr_schedule=training.lr_schedule,
        schedule_rounds=training.schedule_rounds,
        decay_share=training.decay_share,
        lr_floor=training.lr_floor,
        owner=config.network.owner,
    )


_FATE = frozenset({"revision", "owner", "expelled"})
"""Rules that are no setting of a joiner: the swarm has them from its founder and its owner."""


def describe_differences(own: Rules, swarm: Rules) -> list[str]:
    """Where this node's settings differ from the rules of the swarm that it joined."""
    return [
        f"{name} {getattr(own, name)} (the swarm's: {getattr(swarm, name)})"
        for name in type(own).model_fields
        if name not in _FATE and getattr(own, name) != getattr(swarm, name)
    ]


@contextmanager
def _naming_what_does_not_fit() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(f"{type(error).__name__}: {error}"):
            raise
        raise ConfigError(
            "the model does not fit into memory: make it smaller (training.dim, "
            "training.num_layers), or give the node more"
        ) from error


def choose_device(name: str) -> torch.device:
    """The device to train on; ConfigError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device not to be used: {name!r} (auto, cpu, cuda, cuda:0)") from error
    return device


def _build_model(config: SwarmNodeConfig, vocab_size: int) -> nn.Module:
    training = config.training
    if training.model == "rwkv7":
        shape = Rwkv7Config(
            dim=training.dim,
            num_layers=training.num_layers,
            head_size=training.dim // training.heads,
            vocab_size=vocab_size,
        )
        return Rwkv7(shape, seed=training.seed)
    dimensions = TransformerConfig(
        dim=training.dim,
        num_layers=training.num_layers,
        num_heads=training.heads,
        context=training.context,
        vocab_size=vocab_size,
    )
    return Transformer(dimensions, seed=training.seed)
