"""What a node trains: model, data and the device, made from settings or handed in.

Knows nothing of peers or rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.model_shape import BUILT_IN
from neuroswarm.corpus.holding import ShardHolding, find_corpus
from neuroswarm.corpus.loading import BYTE_VOCABULARY, Corpus, load_corpus
from neuroswarm.corpus.manifest import BYTES, VOCABULARY, find_usable, is_shard_folder
from neuroswarm.corpus.shard_batches import ShardBatches
from neuroswarm.corpus.tokenizer import FileTokenizer
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens, Tokens
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import ConfigError, DoesNotFit
from neuroswarm.hardware.capacity import Capacity
from neuroswarm.hardware.memory import is_out_of_memory
from neuroswarm.models.hugging_face import HfFolder
from neuroswarm.node.about_model import AboutModel, Vocabulary, describe_work
from neuroswarm.node.adapting import adapt
from neuroswarm.node.device_choice import choose_devices
from neuroswarm.node.model_building import BuiltModel, build_model, find_folder, has_weights
from neuroswarm.node.setting_names import name_setting
from neuroswarm.node.trainer_fit import (
    HELD_OUT_WINDOWS,
    count_draw,
    fit_trainer,
    look,
    make_batching,
)
from neuroswarm.training.footprint import PARAMETER_BYTES, Fit, Footprint
from neuroswarm.training.loop_model import LoopModel
from neuroswarm.training.loss import LossFunction, next_token_loss
from neuroswarm.training.trained_model import TrainedModel
from neuroswarm.training.trainer import Batches, Trainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is trained, and what to keep beside its states so that they can be read elsewhere."""

    trainer: TrainedModel
    about: AboutModel
    vocab_size: int = 0
    """Tokens for which the model was built; 0 where it was handed over."""


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
    has_own_loop: bool = False
    """Whether a loop outside of the node trains `model`, where it is, on data of its own."""

    def make_trainer(self, config: SwarmNodeConfig, clock: Clock) -> Trainer:
        """The trainer of `prepare`; not for a loop outside."""
        trainer = self.prepare(config, clock).trainer
        assert isinstance(trainer, Trainer), "a loop of one's own has no trainer"
        return trainer

    def prepare(
        self, config: SwarmNodeConfig, clock: Clock, *, fetched: Path | None = None
    ) -> Prepared:
        """Build model and data and put them together. Blocks; takes seconds for large texts.

        Args:
            config: The settings.
            clock: Measures steps.
            fetched: Folder for token shards that are fetched from peers. None: none are, and what
                is here must do.

        Raises:
            DataError: there is no text to train on.
            ConfigError: the device is not there, the model cannot be made or trained, or the data
                does not fit the settings.
        """
        if self.has_own_loop:
            return self._prepare_for_loop(config)
        devices = choose_devices(config.resources)
        device = torch.device(devices[0])
        capacity = look(config.resources, device)
        folder = find_folder(config.training.model) if self.model is None else None
        batches, vocabulary = self._batches(config, folder, fetched, capacity)
        with _naming_what_does_not_fit():
            if self._can_be_hollow(config):
                _require_room(config, vocabulary.size, capacity)
            built = self._build(config, vocabulary.size)
            adapt(
                built.model,
                config.lora,
                seed=config.training.seed,
                has_weights=self.model is not None or has_weights(config.training.model, folder),
            )
            built.model.to(device)
        with _naming_what_cannot_be_trained(built.model):
            trainer = Trainer(
                built.model,
                batches,
                config.training,
                clock=clock,
                loss_fn=self.loss_fn or built.loss_fn or next_token_loss,
            )
        if isinstance(batches, ShardBatches):
            trainer.has_data = lambda: batches.has_data
        is_fixed = not isinstance(batches, WindowSampler | ShardBatches)
        trainer.batching = make_batching(config.training, capacity, is_fixed=is_fixed)
        footprint = replace(
            _measure(built.model, trainer, capacity, is_there=self.model is not None),
            num_ranks=len(devices) if device.type == "cpu" else 1,
        )
        fit_trainer(trainer, config.training, capacity, footprint)
        about = self._describe(config, built.model, trainer, vocabulary, folder)
        return Prepared(trainer, about, vocabulary.size)

    def prepare_hollow(self, config: SwarmNodeConfig, clock: Clock) -> Prepared:
        """A trainer whose model has names and shapes and takes no memory.

        For machines on which `prepare` raises `DoesNotFit`: it tells what the model is.

        Raises:
            DataError: there is no text.
        """
        capacity = look(config.resources, torch.device("cpu"))
        batches, vocabulary = self._batches(config, None, None, capacity)
        with torch.device("meta"):
            model = build_model(config.training, vocabulary.size).model
        trainer = Trainer(model.to("meta"), batches, config.training, clock=clock)
        return Prepared(trainer, self._describe(config, model, trainer, vocabulary, None))

    def _can_be_hollow(self, config: SwarmNodeConfig) -> bool:
        """Whether names and shapes say all of the model that peers compare."""
        is_built_in = self.model is None and config.training.model in BUILT_IN
        return is_built_in and not config.lora.rank

    def _describe(
        self,
        config: SwarmNodeConfig,
        model: nn.Module,
        trainer: TrainedModel,
        vocabulary: Vocabulary,
        folder: HfFolder | None,
    ) -> AboutModel:
        return describe_work(
            model, trainer.fragments, config.training, config.lora, vocabulary,
            folder=folder, is_handed_over=self.model is not None,
        )  # fmt: skip

    def _prepare_for_loop(self, config: SwarmNodeConfig) -> Prepared:
        assert self.model is not None, "the factory sees to it"
        if config.lora.rank:
            raise ConfigError(
                f"lora.rank: {config.lora.rank} (0 with a loop of your own, whose optimiser has to "
                "know the adapters: add them to the model before, as with peft)"
            )
        with _naming_what_cannot_be_trained(self.model):
            trainer = LoopModel(self.model)
        return Prepared(trainer, self._describe(config, self.model, trainer, Vocabulary(), None))

    def _build(self, config: SwarmNodeConfig, vocab_size: int) -> BuiltModel:
        if self.model is not None:
            return BuiltModel(self.model)
        return build_model(config.training, vocab_size)

    def _batches(
        self,
        config: SwarmNodeConfig,
        folder: HfFolder | None,
        fetched: Path | None,
        capacity: Capacity,
    ) -> tuple[Batches, Vocabulary]:
        """What to train on, and the vocabulary that the model needs for it."""
        training = config.training
        if isinstance(self.data, Path) or self.data is None:
            path = self.data or config.data.path
            if path is not None and is_shard_folder(path):
                return _open_shards(path, config, fetched, capacity)
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
            batch_size=count_draw(training, capacity),
            held_out_size=training.batch_size or HELD_OUT_WINDOWS,
            seed=training.seed,
        )
        doing = "training" if config.run.training else "measuring the held-out loss"
        logger.info("%s on %s: %d tokens", doing, corpus.source, corpus.tokens.num_tokens)
        return sampler, Vocabulary(corpus.vocab_size, corpus.tokenizer, corpus.vocabulary)


def _open_shards(
    path: Path, config: SwarmNodeConfig, fetched: Path | None, capacity: Capacity
) -> tuple[ShardBatches, Vocabulary]:
    """Batches of the shards that are here; without `fetched` there must be enough."""
    training = config.training
    own = None if fetched is None or not config.data.fetch else find_corpus(path, fetched)
    holding = ShardHolding(path, own)

    def make_sampler(tokens: Tokens) -> WindowSampler:
        return WindowSampler(
            tokens,
            context=training.context,
            batch_size=count_draw(training, capacity),
            held_out_size=training.batch_size or HELD_OUT_WINDOWS,
            seed=training.seed,
        )

    batches = ShardBatches(holding, training.context + 1, make_sampler)
    if own is None:
        find_usable(path, holding.manifest)
    if own is None or batches.is_enough(holding.held):
        batches.prepare(holding.held)
        batches.begin_round()
    missing = len(holding.shards) - len(holding.held)
    logger.info(
        "%s: %d of %d shards are here%s%s",
        path,
        len(holding.held),
        len(holding.shards),
        ", others are fetched from peers" if missing and own is not None else "",
        "" if batches.has_data else "; training waits for one to train on and one held out",
    )
    name = holding.manifest.tokenizer
    file = path / VOCABULARY if name != BYTES else None
    return batches, Vocabulary(holding.manifest.vocab_size, name, file)


def make_genesis(
    config: SwarmNodeConfig, trainer: TrainedModel, params: tuple[Tensor, ...]
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
        inner_optimizer=training.inner_optimizer,
        inner_lr=training.inner_lr,
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
        f"{name_setting(name)} {getattr(own, name)} (the swarm's: {getattr(swarm, name)})"
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


def _require_room(config: SwarmNodeConfig, vocab_size: int, capacity: Capacity) -> None:
    """DoesNotFit if the machine cannot even hold the built-in model; makes none."""
    with torch.device("meta"):
        model = build_model(config.training, vocab_size).model
    footprint = Footprint(sum(p.numel() for p in model.parameters()), capacity.budget_bytes)
    if footprint.fit is Fit.HELPS:
        raise DoesNotFit(f"the model does not fit into memory: {footprint.explain()}")


def _measure(
    model: nn.Module, trainer: Trainer, capacity: Capacity, *, is_there: bool
) -> Footprint:
    """What a model takes.

    Args:
        model: As it is trained.
        trainer: Of it.
        capacity: The machine's, before the model was made.
        is_there: Whether it was there before already.
    """
    num_trained = sum(trainer.fragments.sizes)
    num_frozen = sum(p.numel() for p in model.parameters()) - num_trained
    budget = capacity.budget_bytes
    if budget is not None and is_there:
        budget += PARAMETER_BYTES * (num_trained + num_frozen)
    return Footprint(num_trained, budget, num_frozen)


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
