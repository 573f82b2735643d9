"""A node's own heartbeat record: described anew, numbered and signed for every announcement.

Refuses to know where it is sent.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import replace

from neuroswarm.membership.presence import Finding, Presence
from neuroswarm.values import NodeId
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.limits import MAX_COUNT
from neuroswarm.wire.signed import Kind, Signed, Signer, sign

logger = logging.getLogger(__name__)

MAX_INCARNATIONS = 2**23
"""Starts of one node that can be told apart; each has 2**30 sequences."""

_SEQUENCES_PER_INCARNATION = MAX_COUNT // MAX_INCARNATIONS


class Hearing(enum.Enum):
    """Who is to be told of this node after a record under its own key was heard."""

    NOTHING = "nothing"
    TELL_ITS_MAKER = "tell its maker"
    TELL_ALL = "tell all"


class OwnRecord:
    """Makes the signed heartbeats of this node, each with a greater sequence than the last.

    Heartbeats and tracker requests share one record, so that whichever arrives last is newest.
    """

    def __init__(
        self,
        signer: Signer,
        describe: Callable[[], Heartbeat],
        *,
        incarnation: int = 0,
        presence: Presence | None = None,
    ) -> None:
        """Wire it up.

        Args:
            signer: Holds the node's key.
            describe: The node as it is now; its sequence, time and instance are replaced.
            incarnation: How often the node was started before, 0 to 2**23 - 1; keeps sequences
                growing across restarts.
            presence: Knows this life's name; None draws one.
        """
        if not 0 <= incarnation < MAX_INCARNATIONS:
            raise ValueError(f"incarnation out of range: {incarnation} (0 to 2**23 - 1)")
        self._signer = signer
        self._describe = describe
        self._sequence = incarnation * _SEQUENCES_PER_INCARNATION
        self._is_leaving = False
        self._told: bytes | None = None
        self.node_id = NodeId.of_key(signer.public_key)
        self.presence = presence or Presence()

    @property
    def sequence(self) -> int:
        """Sequence of the newest heartbeat made."""
        return self._sequence

    @property
    def is_mute(self) -> bool:
        """Whether nothing may be signed any more: a twin goes on under this key."""
        return self.presence.is_lost

    def leave(self) -> None:
        """Say from now on that the node stops, so that peers need not wait for its silence."""
        self._is_leaving = True

    def come_back(self) -> None:
        """Say from now on that the node is there again."""
        self._is_leaving = False

    @property
    def is_leaving(self) -> bool:
        """Whether the node says that it stops."""
        return self._is_leaving

    def describe(self) -> Heartbeat:
        """The node as it is now, with the sequence of the newest heartbeat made."""
        return replace(self._describe(), sequence=self._sequence)

    def make(self, wall: float) -> Signed:
        """Sign the node's state of now; not to be sent once the record `is_mute`.

        Args:
            wall: Seconds since 1970, as this machine believes.
        """
        self._sequence += 1
        record = replace(
            self._describe(),
            sequence=self._sequence,
            time=wall,
            is_leaving=self._is_leaving,
            instance=self.presence.instance,
            twin=self.presence.twin,
            is_settled=self.presence.is_settled,
        )
        return sign(Kind.HEARTBEAT, record.encode(), self._signer)

    def hear(self, record: Heartbeat) -> Hearing:
        """Take a verified record that came back under this node's own key.

        What another life has numbered is passed, or nobody would listen to this one: also when
        the count of starts was lost, or is that of a restored backup.

        Returns:
            Who is to be told of this node at once.
        """
        if self.is_mute:
            return Hearing.NOTHING
        finding = self.presence.judge(record, self._sequence)
        if finding is Finding.OURS or finding is Finding.LOST:
            return Hearing.NOTHING
        is_behind = self._sequence < record.sequence < MAX_COUNT - _SEQUENCES_PER_INCARNATION
        if is_behind:
            self._sequence = record.sequence
        if finding is Finding.TWIN and self._told != record.instance:
            self._told = record.instance
            logger.warning(
                "another node at %s runs with the key of this one, %s: it has to step back "
                "(a copied state folder or card image: give each machine its own)",
                record.heartbeat_endpoint,
                self.node_id,
            )
        is_urgent = is_behind or finding is Finding.TWIN
        return Hearing.TELL_ALL if is_urgent else Hearing.TELL_ITS_MAKER
