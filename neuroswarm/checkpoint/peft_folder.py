"""A model's adapters as a folder that peft loads: `PeftModel.from_pretrained(base, folder)`.

Knows the files' names; the layout in them is `models/peft_layout.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from neuroswarm.checkpoint.durable import translating
from neuroswarm.checkpoint.tensor_file import write_tensors
from neuroswarm.models.peft_layout import peft_config, peft_tensors

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"


def write_peft(
    model: nn.Module, folder: Path, *, base: str | None = None, task_type: str | None = None
) -> Path:
    """Write both files; what else is in the folder stays.

    Args:
        model: With adapters of `models/lora.py`; not trained meanwhile.
        folder: Made if it is missing.
        base: As `peft_config` takes it.
        task_type: As `peft_config` takes it.

    Returns:
        The folder.

    Raises:
        ConfigError: the model has no adapters.
        CheckpointError: the disk does not take it.
    """
    tensors = peft_tensors(model)
    config = peft_config(model, base=base, task_type=task_type)
    with translating("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / TENSORS, tensors)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder
