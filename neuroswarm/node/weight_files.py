"""Reads the weights of a base model from safetensors files.

Knows nothing of the model that gets them.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from neuroswarm.errors import ConfigError

SUFFIX = ".safetensors"


def read_base(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, or of all files of a folder.

    They may be windows into the files, so they must not be written.

    Raises:
        ConfigError: nothing of the kind is there, a file is damaged, or two have the same name.

    Cost: the tensors' bytes are read when they are used.
    """
    tensors: dict[str, Tensor] = {}
    for file in _find_files(path.expanduser()):
        try:
            with safe_open(file, framework="pt") as opened:
                found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"lora.base: cannot read {file}: {error}") from error
        if twice := found.keys() & tensors.keys():
            raise ConfigError(f"lora.base: {sorted(twice)[0]} is in two files of {path}")
        tensors |= found
    return tensors


def _find_files(path: Path) -> list[Path]:
    try:
        files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not path.exists():
            raise ConfigError(f"lora.base: {path} is not there")
    except OSError as error:
        raise ConfigError(f"lora.base: cannot read {path}: {error.strerror}") from error
    if not files:
        raise ConfigError(f"lora.base: no *{SUFFIX} file in {path} (other formats are not read)")
    if path.is_file() and path.suffix != SUFFIX:
        raise ConfigError(f"lora.base: {path} is no *{SUFFIX} file (other formats are not read)")
    return files
