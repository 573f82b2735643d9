"""Adapters as a folder that peft loads: `PeftModel.from_pretrained(base, folder)`.

Knows the files' names; the layout in them is `models/peft_layout.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from neuroswarm.checkpoint.durable import translating
from neuroswarm.checkpoint.tensor_file import write_tensors
from neuroswarm.models.lora import branches
from neuroswarm.models.peft_layout import Adapter, adapters_of, peft_config, peft_tensors

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"


def write_peft(
    model: nn.Module, folder: Path, *, base: str | None = None, task_type: str | None = None
) -> None:
    """Write the adapters of a model, which is not trained meanwhile; as `write_adapters`.

    Raises:
        ConfigError: the model has none.
        CheckpointError: the disk does not take them.
    """
    adapters = adapters_of(model)
    options = next(iter(branches(model).values())).options
    write_adapters(
        adapters, folder, alpha=options.alpha, dropout=options.dropout, base=base,
        task_type=task_type,
    )  # fmt: skip


def write_adapters(
    adapters: Sequence[Adapter],
    folder: Path,
    *,
    alpha: float,
    dropout: float,
    base: str | None,
    task_type: str | None,
) -> None:
    """Write both files; what else is in the folder stays.

    Args:
        adapters: At least one; all of one rank.
        folder: Made if it is missing.
        alpha: As `peft_config` takes it, and so the others.
        dropout: With which they were trained.
        base: Name or folder of the base model.
        task_type: Of peft.

    Raises:
        CheckpointError: the disk does not take it.
    """
    config = peft_config(adapters, alpha=alpha, dropout=dropout, base=base, task_type=task_type)
    with translating("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / TENSORS, peft_tensors(adapters))
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
