"""Asks peers that have been ahead or apart for a while how they came there, several at once.

Keeps the newest offer of a way to them. Knows nothing of the round in progress, nor of what is
done with an offer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.node.inquiry import Offer
from neuroswarm.node.round_parts import RoundParts
from neuroswarm.rounds.history import History
from neuroswarm.values import NodeId, PeerAddress

logger = logging.getLogger(__name__)

MAX_INQUIRIES = 8
"""Peers that are asked at once how they came to be elsewhere; each may take a download's time."""

INQUIRY_PAUSE = 5.0
"""Pause before the same peer is asked again, in multiples of the patience with it."""


class Wayfinder:
    """Looks for the way to the others while they are elsewhere."""

    def __init__(
        self,
        parts: RoundParts,
        *,
        patience_s: float,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
    ) -> None:
        """Wire up.

        Args:
            parts: The peers, who asks them, and this node's state and lineage.
            patience_s: How long a peer may be ahead or apart before it is asked, seconds.
            clock: For pauses between questions.
            spawn: Runs an inquiry in the background.
            wake: Called when there is an offer.
        """
        self._parts = parts
        self._patience_s = patience_s
        self._clock = clock
        self._spawn = spawn
        self._wake = wake
        self._asked_at: dict[NodeId, float] = {}
        self._asking: set[NodeId] = set()
        self.offer: Offer | None = None
        """A way to the others that has not been gone."""

    def take_offer(self) -> Offer | None:
        """The offer, if there is one: it is not kept."""
        offer, self.offer = self.offer, None
        return offer

    def moved(self) -> None:
        """This node is at another state: an offer is kept only if it still leads on from there."""
        self.offer = self._keep(self.offer)

    def may_ask_again(self, peer: NodeId) -> None:
        """A peer's offer was good: it is asked without a pause if it is still ahead."""
        self._asked_at.pop(peer, None)

    def look_around(self, history: History, quorum: int) -> None:
        """Start to ask those that have been elsewhere for a while, and were not asked lately.

        Args:
            history: This node's lineage.
            quorum: Contributions that a round of that many peers should have.
        """
        self._parts.crowd.update_positions()
        now, pause_s = self._clock.monotonic(), INQUIRY_PAUSE * self._patience_s
        for peer in self._parts.crowd.ahead_or_apart(history, self._patience_s):
            if peer.node_id in self._asking or len(self._asking) >= MAX_INQUIRIES:
                continue
            if now - self._asked_at.get(peer.node_id, -math.inf) >= pause_s:
                self._asked_at[peer.node_id] = now
                self._asking.add(peer.node_id)
                self._spawn(self._inquire(peer, history, quorum))
        self._asked_at = {n: at for n, at in self._asked_at.items() if now - at < pause_s}

    async def _inquire(self, peer: PeerAddress, history: History, quorum: int) -> None:
        digest = history.digest
        try:
            offer = await self._parts.inquirer.ask(peer, history, quorum)
        except PeerError as error:
            is_own = isinstance(error, PeerUnreachable) and error.peer is None
            level = logging.DEBUG if is_own else logging.INFO  # it is this node that may not ask
            logger.log(level, "no way to catch up through %s: %s", peer.node_id, error)
            return
        finally:
            self._asking.discard(peer.node_id)
        if self._parts.replica.state.digest != digest:
            offer = self._keep(offer)
        if offer is not None:
            self.offer = offer
            self._wake()

    def _keep(self, offer: Offer | None) -> Offer | None:
        return self._parts.inquirer.keep(offer, self._parts.intake.history)
