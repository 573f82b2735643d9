"""Everything a node needs to go on, as values, and its form as tensors and JSON.

Knows nothing of files (`checkpoint/store.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import CheckpointCorrupt, SchemaMismatch
from neuroswarm.values import NodeId

Part = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Named tensors, and what JSON can hold beside them."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A node between two inner steps; nothing in it is written later.

    Args:
        outer: The outer state that the local parameters are based on.
        local: Local parameters, float32 [N] per fragment.
        ledger: `Ledger.to_tensors`.
        inner: `Trainer.inner_state`.
        meta: What else the node wants back; JSON values.
    """

    outer: OuterState
    local: tuple[Tensor, ...]
    ledger: Part
    inner: Part
    meta: Mapping[str, Any] = field(default_factory=dict)


def to_parts(snapshot: Snapshot) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, contiguous and each with memory of its own, and a JSON document."""
    outer = snapshot.outer
    tensors: dict[str, Tensor] = {}
    for index, fragment in enumerate(outer.fragments):
        tensors[f"outer.params.{index}"] = fragment.params
        tensors[f"outer.momentum.{index}"] = fragment.momentum
    tensors |= {f"local.{index}": flat for index, flat in enumerate(snapshot.local)}
    tensors |= {f"ledger.{name}": tensor for name, tensor in snapshot.ledger[0].items()}
    tensors |= {f"inner.{name}": tensor for name, tensor in snapshot.inner[0].items()}
    return _separate(tensors), {
        "outer": {
            "round": outer.round,
            "digest": outer.digest.hex(),
            "architecture": outer.architecture.hex(),
            "rules": outer.rules.to_bytes().decode(),
            "fragments": [fragment.name for fragment in outer.fragments],
            "applied": [
                [node.hex(), round_, contribution.hex()]
                for node, round_, contribution in applied.entries(outer.applied)
            ],
        },
        "ledger": dict(snapshot.ledger[1]),
        "inner": dict(snapshot.inner[1]),
        "meta": dict(snapshot.meta),
    }


def from_parts(tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> Snapshot:
    """The snapshot that `to_parts` described, exactly; the tensors are taken over.

    Raises:
        CheckpointCorrupt: something is missing, or the outer state has another digest.
    """
    try:
        outer = _outer_state(tensors, document["outer"])
        recorded = bytes.fromhex(document["outer"]["digest"])
        snapshot = Snapshot(
            outer=outer,
            local=tuple(tensors[f"local.{index}"] for index in range(len(outer.fragments))),
            ledger=(_under("ledger.", tensors), document["ledger"]),
            inner=(_under("inner.", tensors), document["inner"]),
            meta=document["meta"],
        )
    except (KeyError, TypeError, ValueError, SchemaMismatch) as error:
        raise CheckpointCorrupt(f"{type(error).__name__}: {error}") from error
    if outer.digest != recorded:
        raise CheckpointCorrupt(
            f"outer state has digest {outer.digest.hex()[:8]}, written was {recorded.hex()[:8]}"
        )
    return snapshot


def _outer_state(tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> OuterState:
    fragments = tuple(
        FragmentState(name, tensors[f"outer.params.{index}"], tensors[f"outer.momentum.{index}"])
        for index, name in enumerate(described["fragments"])
    )
    entries = (
        (NodeId(bytes.fromhex(node)), round_, bytes.fromhex(contribution))
        for node, round_, contribution in described["applied"]
    )
    return OuterState(
        round=described["round"],
        fragments=fragments,
        applied=applied.from_entries(entries),
        rules=Rules.from_bytes(described["rules"].encode()),
        architecture=bytes.fromhex(described["architecture"]),
    )


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Clone what shares memory: the file format wants every tensor whole and once."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.detach().cpu().contiguous()
        storage = whole.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != whole.nbytes:
            whole = whole.clone(memory_format=torch.contiguous_format)
        seen.add(whole.untyped_storage().data_ptr())
        separate[name] = whole
    return separate


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
