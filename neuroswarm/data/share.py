"""Which part of a round's text a node reads: its slot among the members of its outer state.

Knows identities and rounds; refuses to know the text.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

from neuroswarm.values import NodeId

OFFSET_RANGE = 2**53
"""Offsets are below it: whole numbers that JSON keeps everywhere."""


@dataclass(frozen=True, slots=True)
class Share:
    """Slot `slot` of `num_slots` in a round; what it means for a text is the reader's matter.

    Args:
        round: Round of the outer state that the node stands on.
        slot: 0 to `num_slots` - 1.
        num_slots: At least 1.
        offset: Where in the slot's part the node begins, of `OFFSET_RANGE`: 0 to that less 1.

    Raises:
        ValueError: a number is out of its range.
    """

    round: int = 0
    slot: int = 0
    num_slots: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        is_in_range = self.round >= 0 and 0 <= self.slot < self.num_slots
        if not is_in_range or not 0 <= self.offset < OFFSET_RANGE:
            raise ValueError(f"{self}: needs a round from 0 on, a slot of the slots, an offset")


def share_of(round_: int, members: Collection[NodeId], me: NodeId) -> Share:
    """The share of a node that stands on an outer state of `round_`.

    With M members there are M + 1 slots: one each, in the order of their ids, and a spare one for
    whoever is not among them, as the members cannot know of newcomers alike. Newcomers share the
    spare slot and begin at offsets of their own, which no one can foretell but which are not
    apart for sure.

    Args:
        round_: Of the outer state.
        members: Identities that the state names, each once (`diloco.applied.identities`).
        me: The node.
    """
    ranked = sorted(members)
    slot = bisect_left(ranked, me)
    if slot < len(ranked) and ranked[slot] == me:
        return Share(round_, slot, len(ranked) + 1)
    drawn = hashlib.sha256(b"neuroswarm v1 newcomer\0" + struct.pack("<Q", round_) + me).digest()
    offset = int.from_bytes(drawn[:8], "little") % OFFSET_RANGE
    return Share(round_, len(ranked), len(ranked) + 1, offset)
