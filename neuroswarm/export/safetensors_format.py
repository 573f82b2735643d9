"""One file of tensors under the model's own names, beside the record of the model."""

from __future__ import annotations

import logging
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from neuroswarm.errors import ConfigError
from neuroswarm.export.rebuilding import make_module, name_parameters
from neuroswarm.export.source import Source, read_buffers
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.frozen_base import frozen_parameters
from neuroswarm.models.hugging_face import SIDE_FILES
from neuroswarm.node.about_model import RECORD

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"


def write(source: Source, folder: Path) -> None:
    """Write `model.safetensors`: trained parameters, buffers, and frozen parameters if possible."""
    tensors = dict(name_parameters(source))
    tensors |= read_buffers(source)
    if source.record.base:
        tensors |= _read_frozen(source)
    write_weights(folder, source, tensors)
    copy_side_files(source, folder)


def write_weights(folder: Path, source: Source, tensors: dict[str, Tensor]) -> None:
    """Write tensors, which share no memory, and the record of the model."""
    metadata = {"format": "pt", "neuroswarm_state": source.state.digest.hex()}
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS, metadata
    )
    (folder / RECORD).write_bytes(source.record.encode())


def copy_side_files(source: Source, folder: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Copy vocabulary and configuration, where the node has them."""
    for name in SIDE_FILES:
        path = source.model_folder / name
        if name not in without and path.is_file():
            (folder / name).write_bytes(path.read_bytes())


def _read_frozen(source: Source) -> dict[str, Tensor]:
    try:
        model = make_module(source.record, source.model_folder)
        if Fragments(model).base.hex() != source.record.base:
            raise ConfigError("they are others here than at the node")
    except ConfigError as error:
        logger.warning("frozen parameters are left out: %s", error)
        return {}
    return {name: parameter.detach().clone() for name, parameter in frozen_parameters(model)}
