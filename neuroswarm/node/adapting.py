"""Puts the adapters of the settings on a model, over the base that they name.

Knows nothing of data, peers or rounds.
"""

from __future__ import annotations

import logging
from pathlib import Path

from torch import nn

from neuroswarm.config.lora import LoraConfig
from neuroswarm.errors import ConfigError
from neuroswarm.models.hugging_face import is_pretrained
from neuroswarm.models.loading import load_base
from neuroswarm.models.lora import attach_lora, branches, count_adapters
from neuroswarm.models.lora_branch import LoraOptions
from neuroswarm.models.peft_models import is_peft, settle_peft
from neuroswarm.node.weight_files import read_base

logger = logging.getLogger(__name__)


def adapt(model: nn.Module, lora: LoraConfig, *, seed: int, has_weights: bool) -> None:
    """Freeze a model and put adapters on it, in place, if the settings ask for it.

    A model that has its adapters already keeps them and their values; one of peft's gets the A
    that all nodes have (`settle_peft`), whether or not adapters are asked for.

    Args:
        model: On the CPU.
        lora: The settings.
        seed: Of A; `training.seed`.
        has_weights: Whether its parameters are worth adapting; else `lora.base` has to say them.

    Raises:
        ConfigError: the base is not to be had or does not fit, or nothing can be adapted.
    """
    if is_peft(model):
        if lora.rank:
            raise ConfigError("lora.rank: the model has adapters of peft already (leave it out)")
        settle_peft(model, seed=seed, train_a=lora.train_a)
        return
    if not lora.rank:
        return
    if not branches(model):
        _load_base(model, lora.base, has_weights=has_weights)
    attach_lora(model, make_options(lora, seed=seed))
    num_frozen, num_trained = count_adapters(model)
    logger.info(
        "adapters of rank %d: %d parameters are trained, %d are frozen",
        lora.rank,
        num_trained,
        num_frozen,
    )


def make_options(lora: LoraConfig, *, seed: int) -> LoraOptions:
    """The adapters of the settings; their rank is not 0."""
    return LoraOptions(
        rank=lora.rank,
        alpha=lora.scale_alpha,
        targets=lora.targets,
        train_a=lora.train_a,
        dropout=lora.dropout,
        seed=seed,
    )


def _load_base(model: nn.Module, path: Path | None, *, has_weights: bool) -> None:
    if path is None:
        if not has_weights:
            advice = (
                "save them as model.safetensors in the folder of training.model"
                if is_pretrained(model)
                else "give --base PATH"
            )
            raise ConfigError(f"lora.rank: adapters need trained weights below them: {advice}")
        return
    if is_pretrained(model):
        raise ConfigError(
            f"lora.base: {path} (leave it out: the base of a Hugging Face model is its own folder, "
            "hf:FOLDER in training.model)"
        )
    try:
        load_base(model, read_base(path))
    except ValueError as error:
        raise ConfigError(
            f"lora.base: {path} does not fit the model of the settings: {error}"
        ) from error
