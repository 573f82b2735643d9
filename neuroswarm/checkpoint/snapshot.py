"""Everything a node needs to go on, as values, and its form as tensors and JSON.

The outer state, which many nodes hold alike and which never changes, is one part; what the node
alone knows is the other. Knows nothing of files (`checkpoint/store.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from neuroswarm.diloco import applied
from neuroswarm.diloco.publication import LateTensor
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import CheckpointCorrupt, NewerRules, NewerState, SchemaMismatch
from neuroswarm.values import NodeId

Part = tuple[Mapping[str, Tensor | LateTensor], Mapping[str, Any]]
"""Named tensors, some of which may be kept elsewhere, and what JSON can hold beside them."""


Inner = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""As `Part`, all of it in memory."""


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
    inner: Inner
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inner_bytes(self) -> int:
        """Bytes of all tensors but the outer state's."""
        tensors = (*self.local, *self.ledger[0].values(), *self.inner[0].values())
        return sum(tensor.nbytes for tensor in tensors)


def outer_parts(state: OuterState) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An outer state as tensors by name, not copies, and a JSON document."""
    tensors: dict[str, Tensor] = {}
    for index, fragment in enumerate(state.fragments):
        tensors[f"params.{index}"] = fragment.params
        tensors[f"momentum.{index}"] = fragment.momentum
    return tensors, {
        "round": state.round,
        "digest": state.digest.hex(),
        "architecture": state.architecture.hex(),
        "rules": state.rules.to_bytes().decode(),
        "fragments": [fragment.name for fragment in state.fragments],
        "applied": [
            [node.hex(), round_, contribution.hex()]
            for node, round_, contribution in applied.entries(state.applied)
        ],
    }


def outer_from_parts(tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> OuterState:
    """The outer state that `outer_parts` described; the tensors are taken over.

    Raises:
        CheckpointCorrupt: something is missing, or it has another digest.
        NewerState: its rules are of a later version.

    Cost: SHA-256 over 8 bytes a parameter.
    """
    try:
        state = _outer_state(tensors, document)
        recorded = bytes.fromhex(document["digest"])
    except NewerRules as error:
        raise NewerState(f"outer state on disk: {error}; nothing was changed") from error
    except (KeyError, TypeError, ValueError, SchemaMismatch) as error:
        raise CheckpointCorrupt(f"{type(error).__name__}: {error}") from error
    if state.digest != recorded:
        raise CheckpointCorrupt(
            f"outer state has digest {state.digest.hex()[:8]}, written was {recorded.hex()[:8]}"
        )
    return state


def inner_parts(snapshot: Snapshot) -> tuple[dict[str, Tensor | LateTensor], dict[str, Any]]:
    """All but the outer state, which is named by its digest: tensors, not copies, and JSON."""
    tensors: dict[str, Tensor | LateTensor] = {}
    tensors |= {f"local.{index}": flat for index, flat in enumerate(snapshot.local)}
    tensors |= {f"ledger.{name}": tensor for name, tensor in snapshot.ledger[0].items()}
    tensors |= {f"inner.{name}": tensor for name, tensor in snapshot.inner[0].items()}
    return tensors, {
        "outer": snapshot.outer.digest.hex(),
        "round": snapshot.outer.round,
        "ledger": dict(snapshot.ledger[1]),
        "inner": dict(snapshot.inner[1]),
        "meta": dict(snapshot.meta),
    }


def inner_from_parts(
    outer: OuterState, tensors: Mapping[str, Tensor], document: Mapping[str, Any]
) -> Snapshot:
    """The snapshot that `inner_parts` described, exactly; the tensors are taken over.

    Raises:
        CheckpointCorrupt: something is missing.
    """
    try:
        return Snapshot(
            outer=outer,
            local=tuple(tensors[f"local.{index}"] for index in range(len(outer.fragments))),
            ledger=(_under("ledger.", tensors), document["ledger"]),
            inner=(_under("inner.", tensors), document["inner"]),
            meta=document["meta"],
        )
    except (KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{type(error).__name__}: {error}") from error


def _outer_state(tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> OuterState:
    fragments = tuple(
        FragmentState(name, tensors[f"params.{index}"], tensors[f"momentum.{index}"])
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


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
