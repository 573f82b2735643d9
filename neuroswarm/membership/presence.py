"""Whether a node is the only one that goes by its key, found out from records under that key.

A copied state folder or card image makes two nodes with one key. Each life of a node has a random
name, its instance, and names the instance of any other record under its key that it hears of. A
record of somebody else that names *this* instance was made after it was drawn, by a holder of the
key: a twin lives. Old records, replayed by whomever, can name no instance that came later.

Knows no clocks, sockets or files; refuses to know what the node does when it has to step back.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable

from neuroswarm.wire.limits import NAME_BYTES
from neuroswarm.wire.messages import Heartbeat


class Finding(enum.Enum):
    """What a record under the node's own key says."""

    OURS = "ours"
    """Made in this life."""
    CLAIM = "claim"
    """Made in another life: an earlier one of this node, or a twin's that may not know of us."""
    TWIN = "twin"
    """Made by a twin that lives now, and that has to step back."""
    LOST = "lost"
    """Made by a twin that lives now: it is this node that steps back, for good."""


def draw_instance() -> bytes:
    """A name that nobody can know before."""
    return secrets.token_bytes(NAME_BYTES)


class Presence:
    """This life's instance, and what was heard of others under the same key."""

    def __init__(self, draw: Callable[[], bytes] = draw_instance) -> None:
        self._draw = draw
        self.instance = draw()
        """Name of this life, since the last `renew`. 8 bytes."""
        self.twin = b""
        """Instance of the newest other record under this key; empty if there was none."""
        self.is_settled = False
        """Whether this life has taken part in rounds."""
        self.is_lost = False
        """Whether a twin goes on under this key, so that this node may sign nothing more."""

    def settle(self) -> None:
        """The node takes part in rounds: a twin that does not yet has to step back for it."""
        self.is_settled = True

    def renew(self) -> None:
        """Go on under a new name: this life may have been copied while it was suspended."""
        self.instance, self.is_settled = self._draw(), False

    def judge(self, record: Heartbeat, newest_sequence: int) -> Finding:
        """Take a verified record under the node's own key.

        Of two settled twins, or two that are not, the one with the greater instance stays; else
        the settled one. As nobody becomes unsettled under one name, never both step back.

        Args:
            record: The record.
            newest_sequence: The greatest sequence that this life has signed.
        """
        if record.instance == self.instance:
            if record.sequence <= newest_sequence:
                return Finding.OURS
            self.twin = self.instance  # a copy of this process's memory goes on elsewhere
            self.renew()
            return Finding.CLAIM
        self.twin = record.instance
        if record.twin != self.instance:
            return Finding.CLAIM
        mine = (self.is_settled, self.instance)
        if mine > (record.is_settled, record.instance):
            return Finding.TWIN
        self.is_lost = True
        return Finding.LOST
