"""The layout of Hugging Face `transformers`, which `from_pretrained` reads without a network.

Built-in models, of which the library has no class, are written in the same layout: their
`config.json` names them as `neuroswarm_transformer` or `neuroswarm_rwkv7`, and `neuroswarm
generate` reads it.
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor, nn

from neuroswarm.config.model_shape import BUILT_IN
from neuroswarm.errors import ConfigError
from neuroswarm.export.rebuilding import name_parameters, rebuild
from neuroswarm.export.safetensors_format import copy_side_files, write_weights
from neuroswarm.export.source import Source, read_buffers
from neuroswarm.models.fragments import HasDimensions
from neuroswarm.models.hugging_face import CONFIG, is_pretrained, save
from neuroswarm.node.about_model import RECORD

MODEL_TYPE = "neuroswarm_"
"""What the `model_type` of a built-in model begins with."""


def write(source: Source, folder: Path) -> None:
    """Write `config.json`, `model.safetensors`, tokenizer and generation configuration."""
    if source.record.lora is not None:
        raise ConfigError(
            "low-rank adapters have no such form: give --format peft, or --merge to add them into "
            "their base"
        )
    buffers = read_buffers(source)
    model = rebuild(source, buffers)
    if source.record.model in BUILT_IN:
        write_built_in(source, model, folder, dict(name_parameters(source)))
    elif is_pretrained(model):
        save(model, folder)
        copy_side_files(source, folder, without=frozenset({CONFIG}))
        (folder / RECORD).write_bytes(source.record.encode())
    else:
        raise ConfigError(
            f"a model of class {source.record.class_name} is none of Hugging Face: give "
            "--format safetensors"
        )


def write_built_in(
    source: Source, model: nn.Module, folder: Path, tensors: dict[str, Tensor]
) -> None:
    """Write a built-in model with these values; they share no memory."""
    dimensions = dict(model.dimensions) if isinstance(model, HasDimensions) else {}
    config = {
        "architectures": [source.record.class_name],
        "model_type": f"{MODEL_TYPE}{source.record.model}",
        **dimensions,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    write_weights(folder, source, tensors)
    copy_side_files(source, folder, without=frozenset({CONFIG}))
