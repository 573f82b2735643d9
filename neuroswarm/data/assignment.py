"""Which shards of a corpus a node should hold: an order of its own, cut where its room ends.

Pure; refuses to know where shards come from.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from neuroswarm.values import NodeId

HELD_OUT_SHARE = 0.1
"""Part of its room that a node spends on held-out shards, beyond the first one."""


@dataclass(frozen=True, slots=True)
class ShardSize:
    """One shard, as far as it matters for who holds it."""

    num_bytes: int
    is_held_out: bool


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that fetched shards may take, all together."""

    num_bytes: int
    """With what is kept free for the node's other files; may be negative."""
    at_most: int
    """Without: what it takes to train at all may use it."""


def rank_shards(hashes: Sequence[bytes], node_id: NodeId, rotation: int) -> list[int]:
    """The shards in the order in which a node wants them: another one at every node and rotation.

    Nodes that hold the beginnings of their orders hold different parts, and any n nodes leave out
    a share of (1 - p)^n on average if each holds a share p.

    Args:
        hashes: SHA-256 of every shard to train on.
        node_id: Whose order it is.
        rotation: How often the node has changed its shards, 0 to 2**64 - 1.

    Returns:
        Their indices.

    Cost: one SHA-256 a shard: some 50 ms for 65,536.

    Source: Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates",
        section 3 (highest random weight).
        Differs: a node ranks shards instead of a shard ranking nodes, since nodes know their own
        room and not who else is there.
    """
    head = b"neuroswarm v1 shards\0" + node_id + struct.pack("<Q", rotation)
    weights = [hashlib.sha256(head + sha256).digest() for sha256 in hashes]
    return sorted(range(len(weights)), key=lambda index: (weights[index], index))


def plan_shards(
    corpus: Sequence[ShardSize],
    order: Sequence[int],
    *,
    given: Collection[int],
    obtainable: Collection[int],
    room: Room,
) -> list[int]:
    """The shards to have fetched, most urgent first, as many as fit.

    First one held-out shard and one to train on, then training shards in `order`, then further
    held-out ones in that of the corpus, the same at every node.

    Args:
        corpus: All shards.
        order: The training shards, as `rank_shards` has them.
        given: Shards that are here and were not fetched: they take none of the room.
        obtainable: Shards that were fetched already, or that a peer can give now.
        room: How much they may take.

    Returns:
        Indices; none of `given`.
    """
    held_out = [index for index, shard in enumerate(corpus) if shard.is_held_out]
    to_have = [
        [i for i in kind if i in obtainable and i not in given] for kind in (held_out, order)
    ]
    essential = list[int]()
    for kind, possible in zip((held_out, order), to_have, strict=True):
        if not any(index in given for index in kind):
            left = room.at_most - _num_bytes(corpus, essential)
            essential += _fill(corpus, possible, left)[:1]
    further_held_out, training = ([i for i in kind if i not in essential] for kind in to_have)
    left = room.num_bytes - _num_bytes(corpus, essential)
    further = _fill(corpus, further_held_out, min(left, int(HELD_OUT_SHARE * room.num_bytes)))
    left -= _num_bytes(corpus, further)
    return [*essential, *_fill(corpus, training, left), *further]


def _fill(corpus: Sequence[ShardSize], indices: Sequence[int], num_bytes: int) -> list[int]:
    """Those that fit together, whoever comes first first; one that is too large is passed over."""
    taken = list[int]()
    for index in indices:
        if corpus[index].num_bytes <= num_bytes:
            taken.append(index)
            num_bytes -= corpus[index].num_bytes
    return taken


def _num_bytes(corpus: Sequence[ShardSize], indices: Sequence[int]) -> int:
    return sum(corpus[index].num_bytes for index in indices)
