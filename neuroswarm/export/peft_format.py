"""The layout of the library peft: low-rank adapters alone, without the base they stand on.

Needs neither the base nor peft: A follows from the record, B is the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from neuroswarm.checkpoint.peft_folder import write_adapters
from neuroswarm.config.model_shape import HF_PREFIX
from neuroswarm.errors import ConfigError
from neuroswarm.export.rebuilding import name_parameters
from neuroswarm.export.safetensors_format import copy_side_files
from neuroswarm.export.source import Source
from neuroswarm.models.hugging_face import CONFIG
from neuroswarm.models.lora_branch import Kind, start_a
from neuroswarm.models.model_record import LoraRecord, ModelRecord
from neuroswarm.models.peft_layout import Adapter
from neuroswarm.node.about_model import RECORD

_CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the names of transformers' causal models end."""


def write(source: Source, folder: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, and the tokenizer beside them.

    Raises:
        ConfigError: there are no adapters of this library in the state.
        CheckpointError: the state does not fit its record, or the disk refuses.
    """
    record = source.record
    if record.lora is None:
        raise ConfigError(_advise(record))
    is_pretrained = record.model.startswith(HF_PREFIX) or record.class_name.endswith(_CAUSAL)
    write_adapters(
        list(_read_adapters(record.lora, dict(name_parameters(source)))),
        folder,
        alpha=record.lora.alpha,
        dropout=record.lora.settings["dropout"],
        base=_name_base(record),
        task_type="CAUSAL_LM" if is_pretrained else None,
    )
    copy_side_files(source, folder, without=frozenset({CONFIG}))
    (folder / RECORD).write_bytes(record.encode())


def _read_adapters(lora: LoraRecord, parameters: dict[str, Tensor]) -> Iterator[Adapter]:
    for adapter in lora.adapters:
        kind, b = Kind(adapter.kind), parameters[f"{adapter.layer}.lora.B"]
        a = parameters.get(f"{adapter.layer}.lora.A")
        if a is None:
            a = start_a(kind, adapter.layer, lora.seed, (b.shape[1], adapter.num_in))
        yield Adapter(adapter.layer, kind, a, b)


def _name_base(record: ModelRecord) -> str | None:
    """The folder of the base, as the node was told."""
    if record.model.startswith(HF_PREFIX):
        return record.model.removeprefix(HF_PREFIX)
    return None if record.lora is None else record.lora.settings.get("base")


def _advise(record: ModelRecord) -> str:
    names = [part.name for fragment in record.fragments for part in fragment.parameters]
    if any("lora_B" in name for name in names):
        return (
            "adapters of a model of peft that was handed over from Python: it writes them itself "
            "(model.save_pretrained), or give --format safetensors"
        )
    return (
        "no low-rank adapters in this state, it is of a whole model: give --format safetensors "
        "or hf"
    )
