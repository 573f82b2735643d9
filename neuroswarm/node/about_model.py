"""What a node keeps on its disk of its model, so that its states can be exported and read.

Beside the record lie the vocabulary, and of a Hugging Face model its configuration: an export
needs neither the data nor the folder that the model came from. Knows nothing of states.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.config.lora import LoraConfig
from neuroswarm.config.model_shape import HF_PREFIX
from neuroswarm.config.training import TrainingConfig
from neuroswarm.corpus.loading import BYTE_VOCABULARY
from neuroswarm.corpus.manifest import VOCABULARY
from neuroswarm.errors import CheckpointError, DataError
from neuroswarm.models import hugging_face
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.hugging_face import HfFolder
from neuroswarm.models.model_record import ModelRecord, record_model

logger = logging.getLogger(__name__)

RECORD = "neuroswarm.json"

SHAPING = {"model", "dim", "num_layers", "num_heads", "context", "seed"}
"""Settings of `training` that a model is made from."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the tokens of the data stand for."""

    size: int = BYTE_VOCABULARY
    tokenizer: str = ""
    """`bytes`, the SHA-256 of the vocabulary's file, or empty if unknown."""
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class AboutModel:
    """A record, and files by their names."""

    record: ModelRecord
    files: Mapping[str, bytes]

    def keep(self, folder: Path) -> None:
        """Write what is not there yet. A disk that refuses costs exports, never the training."""
        try:
            with translating("make", folder):
                folder.mkdir(exist_ok=True)
            for name, data in {**self.files, RECORD: self.record.encode()}.items():
                path = folder / name
                with translating("read", path):
                    is_there = path.is_file() and path.read_bytes() == data
                if not is_there:
                    replace_file(path, data)
        except CheckpointError as error:
            logger.warning("states of this node cannot be exported: %s", error)


def describe_work(
    model: nn.Module,
    fragments: Fragments,
    training: TrainingConfig,
    lora: LoraConfig,
    vocabulary: Vocabulary,
    *,
    folder: HfFolder | None,
    is_handed_over: bool,
) -> AboutModel:
    """Put together what is known.

    Args:
        model: What is trained.
        fragments: Its fragments.
        training: The settings.
        lora: Those of its adapters.
        vocabulary: Of the data.
        folder: Where a Hugging Face model came from.
        is_handed_over: Whether the model is none of the settings.

    Raises:
        ConfigError, DataError: a file of the model or the vocabulary cannot be read.
    """
    files: dict[str, bytes] = {}
    if folder is not None:
        files = folder.read_side_files()
    elif hugging_face.is_pretrained(model):
        files = hugging_face.describe(model)
    if vocabulary.file is not None:
        try:
            files[VOCABULARY] = vocabulary.file.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {vocabulary.file}: {error.strerror}") from error
    record = record_model(
        model,
        fragments,
        name="" if is_handed_over else _absolute(training.model),
        training={
            **training.model_dump(mode="json", include=SHAPING),
            "model": _absolute(training.model),
        },
        vocab_size=vocabulary.size,
        tokenizer=vocabulary.tokenizer,
        lora=_describe_adapters(lora),
    )
    return AboutModel(record, files)


def _absolute(model: str) -> str:
    """The setting, with a folder's path as it is from any working folder."""
    if not model.startswith(HF_PREFIX):
        return model
    return f"{HF_PREFIX}{Path(model.removeprefix(HF_PREFIX)).expanduser().absolute()}"


def _describe_adapters(lora: LoraConfig) -> dict[str, Any]:
    """The settings, with the base's path as it is from any working folder."""
    base = None if lora.base is None else str(lora.base.expanduser().absolute())
    return {**lora.model_dump(mode="json"), "base": base}
