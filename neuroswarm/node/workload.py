"""What a node trains: model, data and the device, made from settings or handed in.

Knows nothing of peers or rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.model_shape import BUILT_IN
from neuroswarm.corpus.loading import BYTE_VOCABULARY, Corpus, load_corpus
from neuroswarm.corpus.tokenizer import FileTokenizer
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.memory import is_out_of_memory
from neuroswarm.models.hugging_face import HfFolder
from neuroswarm.node.about_model import AboutModel, Vocabulary, describe_work
from neuroswarm.node.adapting import adapt
from neuroswarm.node.model_building import BuiltModel, build_model, find_folder
from neuroswarm.training.loss import LossFunction, next_token_loss
from neuroswarm.training.trainer import Batches, Trainer
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trainer, and what to keep beside its states so that they can be read elsewhere."""

    trainer: Trainer
    about: AboutModel


@dataclass(frozen=True, slots=True)
class Workload:
    """What the user brings; what is None comes from the settings."""

    model: nn.Module | None = None
    """Any module that `loss_fn` understands. None: the built-in one of `training.model`."""
    data: Path | Tensor | Batches | None = None
    """Text file or folder, token ids [num_tokens], or an object that makes batches.
    None: `data.path`, or this Python's standard library."""
    loss_fn: LossFunction | None = None
    """None: the model's own, if it brings one, or else `next_token_loss`."""

    def make_trainer(self, config: SwarmNodeConfig, node_id: NodeId, clock: Clock) -> Trainer:
        """The trainer of `prepare`."""
        return self.prepare(config, node_id, clock).trainer

    def prepare(self, config: SwarmNodeConfig, node_id: NodeId, clock: Clock) -> Prepared:
        """Build model and data and put them together. Blocks; takes seconds for large texts.

        Raises:
            DataError: there is no text to train on.
            ConfigError: the device is not there, the model cannot be made or trained, or the data
                does not fit the settings.
        """
        folder = find_folder(config.training.model) if self.model is None else None
        batches, vocabulary = self._batches(config, node_id, folder)
        with _naming_what_does_not_fit():
            built = self._build(config, vocabulary.size)
            adapt(
                built.model,
                config.lora,
                seed=config.training.seed,
                has_weights=self.model is not None or config.training.model not in BUILT_IN,
            )
            built.model.to(choose_device(config.resources.device))
        with _naming_what_cannot_be_trained(built.model):
            trainer = Trainer(
                built.model,
                batches,
                config.training,
                clock=clock,
                loss_fn=self.loss_fn or built.loss_fn or next_token_loss,
            )
        about = describe_work(
            built.model, trainer.fragments, config.training, config.lora, vocabulary,
            folder=folder, is_handed_over=self.model is not None,
        )  # fmt: skip
        return Prepared(trainer, about)

    def _build(self, config: SwarmNodeConfig, vocab_size: int) -> BuiltModel:
        if self.model is not None:
            return BuiltModel(self.model)
        return build_model(config.training, vocab_size)

    def _batches(
        self, config: SwarmNodeConfig, node_id: NodeId, folder: HfFolder | None
    ) -> tuple[Batches, Vocabulary]:
        """What to train on, and the vocabulary that the model needs for it."""
        training = config.training
        if isinstance(self.data, Path) or self.data is None:
            path = self.data or config.data.path
            text = None if folder is None else folder.vocabulary
            corpus = load_corpus(
                path,
                max_bytes=config.data.max_bytes,
                tokenizer=None if text is None else FileTokenizer(text),
            )
        elif isinstance(self.data, Tensor):
            size = _count_vocabulary(
                self.data, config, folder, is_handed_over=self.model is not None
            )
            corpus = Corpus(FlatTokens(self.data), "tokens handed in", size, tokenizer="")
        elif not hasattr(self.data, "train"):
            raise ConfigError(
                f"data of type {type(self.data).__name__} is neither a path, a tensor of integers "
                "nor an object that makes batches"
            )
        else:
            return self.data, Vocabulary(0 if folder is not None else BYTE_VOCABULARY)
        sampler: WindowSampler = corpus.sampler(
            context=training.context,
            batch_size=training.batch_size,
            seed=training.seed,
            node_id=node_id,
        )
        doing = "training" if config.run.training else "measuring the held-out loss"
        logger.info("%s on %s: %d tokens", doing, corpus.source, corpus.tokens.num_tokens)
        return sampler, Vocabulary(corpus.vocab_size, corpus.tokenizer, corpus.vocabulary)


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
    diloco, aggregation = config.diloco, config.aggregation
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


def _count_vocabulary(
    tokens: Tensor, config: SwarmNodeConfig, folder: HfFolder | None, *, is_handed_over: bool
) -> int:
    """Tokens that a model must know for ids that were handed in.

    It does not follow from the ids, since other nodes may have others: built-in models and
    factories get that of bytes.
    """
    highest = int(tokens.max()) + 1 if tokens.numel() else 0
    if folder is not None:
        return highest
    if highest > BYTE_VOCABULARY and config.training.model in BUILT_IN and not is_handed_over:
        raise ConfigError(
            f"tokens up to {highest - 1} were handed in, and the built-in model knows "
            f"{BYTE_VOCABULARY} then: hand a model over too, or prepare token shards"
        )
    return BYTE_VOCABULARY


@contextmanager
def _naming_what_cannot_be_trained(model: nn.Module) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"cannot train {type(model).__name__}: {error}") from error


@contextmanager
def _naming_what_does_not_fit() -> Iterator[None]:
    try:
        yield
    except NotImplementedError as error:  # torch's, of parameters without values
        raise ConfigError(f"the model cannot be put on the device: {error}") from error
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
