"""How a node comes by its first outer state: from a peer, or by a genesis of its own.

Knows nothing of rounds; a checkpoint on disk comes before all this.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from neuroswarm.checkpoint.download import StateDownloader
from neuroswarm.clock import Clock
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import PeerError
from neuroswarm.membership.peer_table import Peer
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.donors import Candidates
from neuroswarm.values import PeerAddress, short

logger = logging.getLogger(__name__)

LOOK_S = 0.1
RETRY_S = 1.0
PATIENCE_FACTOR = 3
"""A node whose peers have no state either waits this many times longer, unless its id is the
smallest: so that of several that start together one makes the genesis."""


class Joiner:
    """Finds the first outer state."""

    def __init__(self, downloader: StateDownloader, crowd: Crowd, *, clock: Clock) -> None:
        self._downloader = downloader
        self._crowd = crowd
        self._clock = clock

    async def find_state(
        self, make_genesis: Callable[[], OuterState], *, wait_s: float
    ) -> tuple[OuterState, bool]:
        """Download the state of the swarm, or make the genesis of a new one.

        Args:
            make_genesis: Makes the outer state of round 0; may refuse by raising.
            wait_s: Seconds without an answer after which a swarm of its own is started.

        Returns:
            The state, and whether it is a genesis made here.
        """
        started_at = self._clock.monotonic()
        while True:
            live = self._crowd.live()
            holders = [peer for peer in live if peer.heartbeat.digest]
            if holders:
                state = await self._download(holders)
                if state is not None:
                    return state, False
                await self._clock.sleep(RETRY_S)
                started_at = self._clock.monotonic()  # there is a swarm: found none too soon
                continue
            waited_s = self._clock.monotonic() - started_at
            is_first = all(self._crowd.me < peer.node_id for peer in live)
            if waited_s >= (wait_s if is_first else PATIENCE_FACTOR * wait_s):
                genesis = make_genesis()
                self._say_founding()
                return genesis, True
            await self._clock.sleep(LOOK_S)

    def _say_founding(self) -> None:
        logger.info("no swarm to be found: starting one (others join it at any time)")
        if strangers := self._crowd.strangers():
            logger.warning(
                "%s has this node's token, but trains another model or under another name: "
                "to join it, give the same network.name, training.dim, num_layers, num_heads and "
                "context",
                strangers[0].address,
            )

    async def wait_for_peers(self, wait_s: float) -> None:
        """Wait until a peer is heard of, at most so long.

        A node that comes back would else finish rounds on its own, apart from the swarm.
        """
        until = self._clock.monotonic() + wait_s
        while not self._crowd.live() and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_S)

    async def _download(self, holders: list[Peer]) -> OuterState | None:
        """What a former life began comes first, then the best state; liars hold nobody up long."""
        begun = await self._downloader.unfinished(Candidates(self._crowd.live, b""))
        digests = [digest for digest, _ in rank_states(holders)]
        for digest in dict.fromkeys(digests if begun is None else [begun, *digests]):
            logger.info("joining the swarm: downloading state %s", short(digest))
            try:
                return await self._downloader.fetch(digest, Candidates(self._crowd.live, digest))
            except PeerError as error:
                logger.info("no state %s: %s", short(digest), error)
        return None


def rank_states(holders: list[Peer]) -> list[tuple[bytes, list[PeerAddress]]]:
    """The digests that peers hold, each with its holders.

    First the one that most of them hold, the newest of equals.
    """
    rounds = {peer.heartbeat.digest: peer.heartbeat.round for peer in holders}
    counts = Counter(peer.heartbeat.digest for peer in holders)
    ranked = sorted(counts, key=lambda d: (counts[d], rounds[d], d), reverse=True)
    return [(d, [p.address for p in holders if p.heartbeat.digest == d]) for d in ranked]
