"""Loads what can speak: a node's state folder, an export, or a Hugging Face folder.

Knows nothing of how tokens are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from neuroswarm.checkpoint import peft_folder
from neuroswarm.config.model_shape import BUILT_IN, HF_PREFIX
from neuroswarm.corpus.manifest import BYTES
from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer
from neuroswarm.errors import CheckpointCorrupt, CheckpointError, ConfigError
from neuroswarm.export.rebuilding import fill, make_module, rebuild, require_same_base
from neuroswarm.export.safetensors_format import WEIGHTS
from neuroswarm.export.source import is_state_folder, open_source, read_buffers
from neuroswarm.generation.speaker import (
    Speaker,
    speak_by_library,
    speak_in_windows,
    speak_recurrently,
)
from neuroswarm.models.hugging_face import (
    CONFIG,
    VOCABULARY,
    is_pretrained,
    load_model,
    max_positions_of,
    open_folder,
)
from neuroswarm.models.model_record import ModelRecord
from neuroswarm.models.peft_layout import fill_adapters
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.transformer import Transformer
from neuroswarm.node.about_model import RECORD


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model that continues tokens, and what makes tokens of text and back."""

    speak: Speaker
    tokenizer: Tokenizer


def load_text_model(
    path: Path, tokenizer: Tokenizer | None = None, *, factory: str = ""
) -> TextModel:
    """Load a model in evaluation mode, on the CPU.

    Args:
        path: A node's state folder, what `neuroswarm export` made, or the folder of a Hugging
            Face causal model.
        tokenizer: Instead of the one that is found there.
        factory: `module:factory` that an export may name to be called: a folder from elsewhere
            must not choose which code runs here.

    Raises:
        ConfigError: there is no model, or no tokenizer, or it cannot be made here.
        CheckpointError: it cannot be read.
    """
    path = path.expanduser()
    if is_state_folder(path):
        source = open_source(path)
        model, record = rebuild(source, read_buffers(source)), source.record
        folder = source.model_folder
    elif (path / RECORD).is_file():
        record, folder = ModelRecord.decode((path / RECORD).read_bytes()), path
        _require_trust(path, record, factory)
        model = _read_export(path, record)
    elif (path / CONFIG).is_file():
        model, record, folder = load_model(open_folder(path), seed=0), None, path
    else:
        raise ConfigError(
            f"nothing to speak in {path}: give a node's --state-dir, a folder that `neuroswarm "
            "export` made, or one of a Hugging Face causal model"
        )
    model.eval()
    context = int(record.training["context"]) if record else 0
    return TextModel(_choose_speaker(model, context), tokenizer or _find_tokenizer(folder, record))


def _require_trust(path: Path, record: ModelRecord, factory: str) -> None:
    is_code = bool(record.model) and record.model not in BUILT_IN
    if is_code and not record.model.startswith(HF_PREFIX) and record.model != factory:
        raise ConfigError(
            f"{path} says that code makes its model: {record.model} (if you trust what this "
            f"imports here, give --model {record.model})"
        )


def _read_export(path: Path, record: ModelRecord) -> nn.Module:
    if record.lora is not None and (path / peft_folder.TENSORS).is_file():
        return _read_adapters(path, record)
    tensors = _load(path / WEIGHTS)
    model = make_module(record, path)
    parameters, others = _sort(tensors, record)
    fill(model, parameters, others)
    return model


def _read_adapters(path: Path, record: ModelRecord) -> nn.Module:
    """Adapters that were exported alone, on the base that they had at the node."""
    tensors = _load(path / peft_folder.TENSORS)
    try:
        model = make_module(record, path)
        require_same_base(model, record)
    except ConfigError as error:
        raise ConfigError(
            f"{path} has adapters alone, and their base is not to be had here: {error} (put it "
            "there again, or export a whole model with --merge)"
        ) from error
    fill_adapters(model, tensors)
    return model


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _sort(
    tensors: Mapping[str, Tensor], record: ModelRecord
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Trained parameters, and all else; CheckpointCorrupt if one is missing or misshapen."""
    named = {part.name: part for fragment in record.fragments for part in fragment.parameters}
    for name, part in named.items():
        if name not in tensors or list(tensors[name].shape) != part.shape:
            raise CheckpointCorrupt(f"{WEIGHTS}: {name} is missing, or of another shape")
    others = {name: tensor for name, tensor in tensors.items() if name not in named}
    return {name: tensors[name] for name in named}, others


def _choose_speaker(model: nn.Module, context: int) -> Speaker:
    if isinstance(model, Rwkv7):
        return speak_recurrently(model)
    if is_pretrained(model):
        from transformers import PreTrainedModel

        pretrained = cast("PreTrainedModel", model)
        return speak_by_library(pretrained, max_positions_of(pretrained))
    longest = model.config.context if isinstance(model, Transformer) else context
    return speak_in_windows(model, longest)


def _find_tokenizer(folder: Path, record: ModelRecord | None) -> Tokenizer:
    if record is not None and record.tokenizer == BYTES:
        return ByteTokenizer()
    path = folder / VOCABULARY
    if not path.is_file():
        raise ConfigError(f"no tokenizer is known of {folder}: give --tokenizer (bytes, or a file)")
    found = FileTokenizer(path)
    if record is not None and record.tokenizer and found.name != record.tokenizer:
        raise ConfigError(f"{path} is not the vocabulary that the model was trained with")
    return found
