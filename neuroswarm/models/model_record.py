"""What a node writes down of its model, so that others can read its states.

A state knows its fragments as flat vectors; the record knows which parameters they are made of,
and how the model was made. Knows nothing of files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from neuroswarm.errors import CheckpointCorrupt
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.lora import branches

MAX_RECORD_BYTES = 64 * 1024 * 1024


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ParameterRecord(_Closed):
    """One parameter as the model has it."""

    name: str
    shape: list[int]
    dtype: str = Field(pattern=r"^[a-z]+[0-9a-z_]*$")
    """Like `bfloat16`; states have float32."""

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


class FragmentRecord(_Closed):
    """One fragment: its parameters, in the order of the flat vector."""

    name: str
    parameters: list[ParameterRecord]


class AdapterRecord(_Closed):
    """One low-rank adapter: what its trained parameters do not show."""

    layer: str
    kind: str
    """A `Kind` of `lora_branch`."""
    num_in: int
    """Columns of A."""


class LoraRecord(_Closed):
    """Low-rank adapters, so that they can be written without the base."""

    settings: dict[str, Any]
    """Settings of the section `lora`."""
    alpha: float
    seed: int
    """Of A, where that is not trained."""
    adapters: list[AdapterRecord]


class ModelRecord(_Closed):
    """A model, without its values."""

    format: Literal["neuroswarm model 1"] = "neuroswarm model 1"
    model: str
    """The setting `training.model`; empty for a module that was handed over from Python."""
    class_name: str
    training: dict[str, Any]
    """Settings of the section `training` that shape the model."""
    vocab_size: int
    """Tokens of the data; the model may know more."""
    tokenizer: str
    """`bytes`, the SHA-256 of a `tokenizer.json` in hex, or empty if unknown."""
    architecture: str
    base: str
    """Hash of the frozen parameters in hex; empty where none is frozen."""
    fragments: list[FragmentRecord]
    tied: dict[str, str]
    """Further names of parameters: from each to the one under which it travels."""
    lora: LoraRecord | None = None
    """None without adapters of this library."""

    def encode(self) -> bytes:
        """The file's bytes; the same record gives the same bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> ModelRecord:
        """Read what `encode` made.

        Raises:
            CheckpointCorrupt: it is something else.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise CheckpointCorrupt(f"no record of a model: {where}: {first['msg']}") from error

    def split(self, index: int, flat: Tensor) -> Iterator[tuple[ParameterRecord, Tensor]]:
        """The parameters of a fragment out of its flat vector: windows, not copies.

        Raises:
            CheckpointCorrupt: the vector has another length.
        """
        parts = self.fragments[index].parameters
        if flat.numel() != sum(part.size for part in parts):
            raise CheckpointCorrupt(
                f"fragment {self.fragments[index].name}: {flat.numel()} parameters, and the record "
                f"of the model says {sum(part.size for part in parts)}"
            )
        start = 0
        for part in parts:
            yield part, flat[start : start + part.size].view(part.shape)
            start += part.size


def record_model(
    model: nn.Module,
    fragments: Fragments,
    *,
    name: str,
    training: Mapping[str, Any],
    vocab_size: int,
    tokenizer: str,
    lora: Mapping[str, Any] | None = None,
) -> ModelRecord:
    """Write down a model.

    Args:
        model: The module.
        fragments: Its fragments.
        name: The setting `training.model`; empty if it was handed over.
        training: Settings that shape it, JSON values.
        vocab_size: Tokens of the data.
        tokenizer: What made them.
        lora: Settings of its adapters, JSON values.
    """
    return ModelRecord(
        model=name,
        class_name=type(model).__qualname__,
        training=dict(training),
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        architecture=fragments.architecture.hex(),
        base=fragments.base.hex(),
        fragments=[
            FragmentRecord(
                name=fragment.name,
                parameters=[
                    ParameterRecord(
                        name=full, shape=list(p.shape), dtype=str(p.dtype).removeprefix("torch.")
                    )
                    for full, p in fragment.parameters
                ],
            )
            for fragment in fragments
        ],
        tied=_find_tied(model, fragments),
        lora=_record_adapters(model, dict(lora or {})),
    )


def _record_adapters(model: nn.Module, settings: dict[str, Any]) -> LoraRecord | None:
    found = branches(model)
    if not found:
        return None
    options = next(iter(found.values())).options
    return LoraRecord(
        settings=settings,
        alpha=options.alpha,
        seed=options.seed,
        adapters=[
            AdapterRecord(layer=name, kind=branch.kind.value, num_in=branch.A.shape[1])
            for name, branch in found.items()
        ],
    )


def _find_tied(model: nn.Module, fragments: Fragments) -> dict[str, str]:
    first = {id(parameter): name for name, parameter in fragments.parameters}
    return {
        name: first[id(parameter)]
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if id(parameter) in first and first[id(parameter)] != name
    }
