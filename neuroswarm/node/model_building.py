"""The model that the settings ask for, made anew.

Knows nothing of data, swarms or states: what it makes has its initial parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from neuroswarm.config.model_shape import BUILT_IN, HF_PREFIX
from neuroswarm.config.training import TrainingConfig
from neuroswarm.errors import ConfigError
from neuroswarm.models.hugging_face import (
    HfFolder,
    load_model,
    max_positions_of,
    open_folder,
    vocab_size_of,
)
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.models.user_factory import call_factory
from neuroswarm.training.loss import LossFunction


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model in training mode, and the loss that it brings."""

    model: nn.Module
    loss_fn: LossFunction | None = None
    """None: `next_token_loss`."""


def build_model(training: TrainingConfig, vocab_size: int) -> BuiltModel:
    """Make the model of the settings, on the CPU.

    Args:
        training: `model` says which; `seed` is that of its initial parameters.
        vocab_size: Tokens that it must know.

    Raises:
        ConfigError: there is no such model, or it does not fit the settings.
    """
    if training.model in BUILT_IN:
        return BuiltModel(_build_built_in(training, vocab_size))
    folder = find_folder(training.model)
    if folder is not None:
        return BuiltModel(_build_from_folder(folder, training, vocab_size))
    offered = {"vocab_size": vocab_size, "context": training.context, "seed": training.seed}
    return BuiltModel(*call_factory(training.model, offered, seed=training.seed))


def find_folder(model: str) -> HfFolder | None:
    """The folder of a Hugging Face model that the setting names; None for other models.

    Raises:
        ConfigError: it names one that cannot be used.
    """
    if not model.startswith(HF_PREFIX):
        return None
    return open_folder(Path(model.removeprefix(HF_PREFIX)).expanduser())


def has_weights(model: str, folder: HfFolder | None) -> bool:
    """Whether what the setting names may be trained already, and so can be adapted."""
    return model not in BUILT_IN if folder is None else folder.has_weights


def _build_from_folder(folder: HfFolder, training: TrainingConfig, vocab_size: int) -> nn.Module:
    model = load_model(folder, seed=training.seed)
    known, longest = vocab_size_of(model), max_positions_of(model)
    if vocab_size > known:
        raise ConfigError(
            f"data of {vocab_size} tokens, and the model in {folder.path} knows {known}: prepare "
            f"the data with its tokenizer, or set vocab_size in its config.json before training"
        )
    if longest is not None and training.context > longest:
        raise ConfigError(
            f"training.context: {training.context} (the model in {folder.path} takes at most "
            f"{longest} tokens)"
        )
    return model


def _build_built_in(training: TrainingConfig, vocab_size: int) -> nn.Module:
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
