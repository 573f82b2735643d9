"""The table of contributions agreed in the last 16 rounds, by node; part of the outer state.

Knows who was agreed and when; refuses to know what the contributions held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from neuroswarm.errors import SchemaMismatch
from neuroswarm.values import HASH_BYTES, NodeId
from neuroswarm.wire import limits

WINDOW_ROUNDS = 16
"""Rounds that the table looks back."""

Applied = Mapping[NodeId, tuple[tuple[int, bytes], ...]]
"""By node: (round that agreed it, contribution id), rounds ascending. Never written."""


def add(applied: Applied, round_: int, agreed: Iterable[tuple[NodeId, bytes]]) -> Applied:
    """The table after round `round_` agreed these (node, contribution id); old rounds dropped."""
    table = {node_id: list(entries) for node_id, entries in applied.items()}
    for node_id, contribution_id in agreed:
        table.setdefault(node_id, []).append((round_, contribution_id))
    return prune({node_id: tuple(entries) for node_id, entries in table.items()}, round_ + 1)


def prune(applied: Applied, round_: int) -> Applied:
    """The table without what is older than the window of an outer state of round `round_`."""
    first = round_ - WINDOW_ROUNDS
    kept = {
        node_id: tuple(entry for entry in entries if entry[0] >= first)
        for node_id, entries in applied.items()
    }
    return {node_id: entries for node_id, entries in kept.items() if entries}


def contains(applied: Applied, node_id: NodeId, contribution_id: bytes) -> bool:
    """Whether that node's contribution was agreed, as far as the table looks back."""
    return any(entry[1] == contribution_id for entry in applied.get(node_id, ()))


def identities(applied: Applied, round_: int) -> frozenset[NodeId]:
    """Nodes agreed within the window of an outer state of round `round_`."""
    return frozenset(prune(applied, round_))


def entries(applied: Applied) -> Iterator[tuple[NodeId, int, bytes]]:
    """Every (node, round, contribution id), by node then round then id: the canonical order."""
    for node_id in sorted(applied):
        for round_, contribution_id in sorted(applied[node_id]):
            yield node_id, round_, contribution_id


def from_entries(found: Iterable[tuple[NodeId, int, bytes]]) -> Applied:
    """Build a table from entries of anyone.

    Raises:
        SchemaMismatch: Too many entries, a round out of range, or an id of the wrong size.
    """
    table: dict[NodeId, list[tuple[int, bytes]]] = {}
    for count, (node_id, round_, contribution_id) in enumerate(found, start=1):
        if count > limits.MAX_APPLIED:
            raise SchemaMismatch(f"applied contributions: over {limits.MAX_APPLIED}")
        if not 0 <= round_ <= limits.MAX_COUNT or len(contribution_id) != HASH_BYTES:
            raise SchemaMismatch(f"applied contribution of round {round_} is malformed")
        table.setdefault(node_id, []).append((round_, contribution_id))
    return {node_id: tuple(sorted(listed)) for node_id, listed in table.items()}


def to_bytes(applied: Applied) -> bytes:
    """Canonical bytes for the digest: 60 an entry (node id, round as 8 bytes, id)."""
    return b"".join(
        node_id + round_.to_bytes(8, "little") + contribution_id
        for node_id, round_, contribution_id in entries(applied)
    )
