"""Low-rank adapters added into the base they stand on: a whole model, as if trained as one.

The merged parameters are rounded sums: no state that nodes agreed on has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from neuroswarm.config.model_shape import BUILT_IN, HF_PREFIX
from neuroswarm.errors import ConfigError
from neuroswarm.export.hf_format import write_built_in
from neuroswarm.export.rebuilding import rebuild
from neuroswarm.export.safetensors_format import copy_side_files, write_weights
from neuroswarm.export.source import Source, read_buffers
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.hugging_face import CONFIG, is_pretrained, save
from neuroswarm.models.lora import merge_lora
from neuroswarm.models.model_record import ModelRecord, record_model
from neuroswarm.node.about_model import RECORD


def write_merged(source: Source, folder: Path, form: str) -> None:
    """Write a state's base with its adapters added, in the form `safetensors` or `hf`.

    Raises:
        ConfigError: there are no adapters, the base is not to be had or another one than at the
            node, or the form has no such model.
        CheckpointError: the state does not fit what is known of its model.
        OSError: the disk refuses.
    """
    if source.record.lora is None:
        raise ConfigError("--merge: no low-rank adapters in this state, it is of a whole model")
    if form not in ("safetensors", "hf"):
        raise ConfigError(
            f"--merge makes a whole model: give --format safetensors or hf, not {form}"
        )
    model = rebuild(source, read_buffers(source))
    merge_lora(model)
    whole = replace(source, record=_record_whole(model, source.record))
    if form == "safetensors":
        write_weights(folder, whole, _tensors_of(model))
        copy_side_files(source, folder)
    elif is_pretrained(model):
        save(model, folder)
        copy_side_files(source, folder, without=frozenset({CONFIG}))
        (folder / RECORD).write_bytes(whole.record.encode())
    elif source.record.model in BUILT_IN:
        write_built_in(whole, model, folder, _tensors_of(model))
    else:
        raise ConfigError(
            f"a model of class {source.record.class_name} is none of Hugging Face: give "
            "--format safetensors"
        )


def with_base(source: Source, base: Path) -> Source:
    """The same state, with its base looked for elsewhere than where its node had it."""
    record = source.record
    if record.lora is None:
        raise ConfigError("--base: no low-rank adapters in this state, it needs no base")
    path = str(base.expanduser().absolute())
    if record.model.startswith(HF_PREFIX):
        return replace(source, record=record.model_copy(update={"model": HF_PREFIX + path}))
    settings = {**record.lora.settings, "base": path}
    lora = record.lora.model_copy(update={"settings": settings})
    return replace(source, record=record.model_copy(update={"lora": lora}))


@contextmanager
def naming_base(base: Path | None) -> Iterator[None]:
    """Say `--base` where the setting of the node is named that it stands for, if it is given."""
    try:
        yield
    except ConfigError as error:
        setting, colon, said = str(error).partition(": ")
        if base is None or not colon or setting not in ("training.model", "lora.base"):
            raise
        raise ConfigError(f"--base: {said}") from error


def _record_whole(model: nn.Module, before: ModelRecord) -> ModelRecord:
    """The record of a model that is trained as a whole from here on."""
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return record_model(
        model,
        Fragments(model),
        name=before.model,
        training=before.training,
        vocab_size=before.vocab_size,
        tokenizer=before.tokenizer,
    )


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, and the persistent buffers; they share no memory."""
    kept = model.state_dict()
    buffers = {name: value for name, value in model.named_buffers() if name in kept}
    return {name: value.detach() for name, value in [*model.named_parameters(), *buffers.items()]}
