"""A node's own heartbeat record: described anew, numbered and signed for every announcement.

Refuses to know where it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from neuroswarm.values import NodeId
from neuroswarm.wire.limits import MAX_COUNT
from neuroswarm.wire.messages import Heartbeat
from neuroswarm.wire.signed import Kind, Signed, Signer, sign

MAX_INCARNATIONS = 2**23
"""Starts of one node that can be told apart; each has 2**30 sequences."""

_SEQUENCES_PER_INCARNATION = MAX_COUNT // MAX_INCARNATIONS


class OwnRecord:
    """Makes the signed heartbeats of this node, each with a greater sequence than the last.

    Heartbeats and tracker requests share one record, so that whichever arrives last is newest.
    """

    def __init__(
        self, signer: Signer, describe: Callable[[], Heartbeat], *, incarnation: int = 0
    ) -> None:
        """Wire it up.

        Args:
            signer: Holds the node's key.
            describe: The node as it is now; its sequence and time are replaced.
            incarnation: How often the node was started before, 0 to 2**23 - 1; keeps sequences
                growing across restarts.
        """
        if not 0 <= incarnation < MAX_INCARNATIONS:
            raise ValueError(f"incarnation out of range: {incarnation} (0 to 2**23 - 1)")
        self._signer = signer
        self._describe = describe
        self._sequence = incarnation * _SEQUENCES_PER_INCARNATION
        self.node_id = NodeId.of_key(signer.public_key)

    @property
    def sequence(self) -> int:
        """Sequence of the newest heartbeat made."""
        return self._sequence

    def describe(self) -> Heartbeat:
        """The node as it is now, with the sequence of the newest heartbeat made."""
        return replace(self._describe(), sequence=self._sequence)

    def make(self, wall: float, *, is_leaving: bool = False) -> Signed:
        """Sign the node's state of now.

        Args:
            wall: Seconds since 1970, as this machine believes.
            is_leaving: Whether the node stops, so that peers need not wait for its silence.
        """
        self._sequence += 1
        record = replace(
            self._describe(), sequence=self._sequence, time=wall, is_leaving=is_leaving
        )
        return sign(Kind.HEARTBEAT, record.encode(), self._signer)
