"""A model again from its record, with the parameters of an outer state.

Knows nothing of files but those that models are made from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from neuroswarm.config.lora import LoraConfig
from neuroswarm.config.model_shape import HF_PREFIX
from neuroswarm.config.training import TrainingConfig
from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.export.source import Source
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.hugging_face import CONFIG, load_model, open_folder
from neuroswarm.models.model_record import ModelRecord
from neuroswarm.node.adapting import adapt
from neuroswarm.node.model_building import build_model

logger = logging.getLogger(__name__)


def rebuild(source: Source, buffers: Mapping[str, Tensor]) -> nn.Module:
    """Make the model of a state, in evaluation mode, on the CPU, in its own dtypes.

    Args:
        source: The state.
        buffers: By name; those that the model does not have are left alone.

    Raises:
        ConfigError: it cannot be made here, or has other frozen parameters than at the node.
    """
    model = make_module(source.record, source.model_folder)
    require_same_base(model, source.record)
    fill(model, dict(name_parameters(source)), buffers)
    return model.eval()


def require_same_base(model: nn.Module, record: ModelRecord) -> None:
    """ConfigError if frozen parameters are others than at the node."""
    found = Fragments(model).base.hex()
    if record.base != found:
        raise ConfigError(
            f"frozen parameters are others than at the node (base {found[:8] or 'none'}, not "
            f"{record.base[:8] or 'none'})"
        )


def make_module(record: ModelRecord, folder: Path) -> nn.Module:
    """A model of this record with its initial parameters.

    Args:
        record: What is known of it.
        folder: Where a Hugging Face configuration lies, in an export with weights.

    Raises:
        ConfigError: it cannot be made here, or is another one than was recorded.
    """
    training = TrainingConfig(**{**record.training, "model": record.model or "transformer"})
    is_described = is_of_library(record) and (folder / CONFIG).is_file()
    if is_described and (not record.base or open_folder(folder).has_weights):
        model: nn.Module = load_model(open_folder(folder), seed=training.seed)
    elif record.model:
        model = build_model(training, record.vocab_size).model
    else:
        raise ConfigError(
            f"a model of class {record.class_name} was handed to the node from Python, and cannot "
            "be made here (--format safetensors takes its parameters out)"
        )
    if record.lora is not None:
        lora = LoraConfig(**record.lora.settings)
        adapt(model, lora, seed=record.lora.seed, has_weights=True)
    _check_same(model, record)
    return model


def name_parameters(source: Source) -> Iterator[tuple[str, Tensor]]:
    """The trained parameters under their own names and in their own dtypes, as copies.

    Raises:
        CheckpointError: the state does not fit the record.
    """
    record, state = source.record, source.state
    names = [fragment.name for fragment in record.fragments]
    if names != [fragment.name for fragment in state.fragments]:
        raise CheckpointError("the record of the model has other fragments than the state")
    for index, fragment in enumerate(state.fragments):
        for part, values in record.split(index, fragment.params):
            yield part.name, values.to(_dtype(part.dtype), copy=True)


@torch.no_grad()
def fill(model: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
    """Set trained parameters and buffers; parameters take over the dtype of what is given."""
    for name, values in parameters.items():
        model.get_parameter(name).data = values
    own = dict(model.named_buffers())
    for name, values in buffers.items():
        if name in own and own[name].shape == values.shape:
            own[name].copy_(values)


def is_of_library(record: ModelRecord) -> bool:
    """Whether a configuration beside the record is one that `transformers` reads."""
    return not record.model or record.model.startswith(HF_PREFIX)


def _check_same(model: nn.Module, record: ModelRecord) -> None:
    made = [
        (fragment.name, [(name, list(p.shape)) for name, p in fragment.parameters])
        for fragment in Fragments(model)
    ]
    known = [(f.name, [(p.name, p.shape) for p in f.parameters]) for f in record.fragments]
    if made != known:
        raise ConfigError(
            f"{record.model or record.class_name} makes another model here than at the node: "
            "its parameters have other names or shapes"
        )


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise CheckpointError(f"the record of the model names a dtype {name!r} that torch lacks")
    return found
