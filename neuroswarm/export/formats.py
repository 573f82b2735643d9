"""The forms in which a state can be exported, by name.

A further form is a module with a function like the ones here, and a line in `_MODULES`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

from neuroswarm.export.source import Source

_MODULES = {
    "safetensors": "neuroswarm.export.safetensors_format",
    "hf": "neuroswarm.export.hf_format",
    "peft": "neuroswarm.export.peft_format",
}
"""Imported when they are used: some need libraries that are not always installed."""

FORMATS = tuple(_MODULES)


class Writer(Protocol):
    """Writes one form."""

    def __call__(self, source: Source, folder: Path) -> None:
        """Write a state's files, all but the model card.

        Args:
            source: The state.
            folder: Empty.

        Raises:
            ConfigError: the model has no such form, or cannot be made here.
            CheckpointError: the state does not fit what is known of its model.
            OSError: the disk refuses.
        """
        ...


def find_writer(name: str) -> Writer:
    """The function that writes a form."""
    writer: Writer = importlib.import_module(_MODULES[name]).write
    return writer
