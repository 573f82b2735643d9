"""How a node comes by its first outer state: from a peer, or by a genesis of its own.

Knows nothing of rounds; a checkpoint on disk comes before all this.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from neuroswarm.clock import Clock
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import NewerRules, PeerError, PeerUnreachable
from neuroswarm.membership.peer import Peer
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.donors import Candidates, FirstLook, Rivals
from neuroswarm.transfer.download import MAX_MANIFESTS, StateDownloader
from neuroswarm.values import PeerAddress, short

logger = logging.getLogger(__name__)

LOOK_S = 0.1
RETRY_S = 1.0
LISTEN_S = 2.0
"""At most so long a joiner that has heard of a holder listens for others before it has chosen."""

MAX_TRIES = 8
"""States that are tried one after the other before it waits `RETRY_S`."""

PATIENCE_FACTOR = 3
"""A node whose peers have no state either waits this many times longer, unless its id is the
smallest: so that of several that start together one makes the genesis."""


class Joiner:
    """Finds the first outer state."""

    def __init__(
        self,
        downloader: StateDownloader,
        crowd: Crowd,
        *,
        clock: Clock,
        listen_s: float = LISTEN_S,
    ) -> None:
        """Wire up.

        Args:
            downloader: Fetches states.
            crowd: The peers that may hold one.
            clock: Measures all waiting.
            listen_s: Seconds after the first holder is heard of, in which others are listened
                for: about one heartbeat interval, so that whoever comes first is not the only one.
                The download begins meanwhile, and begins anew if most others hold another state.
        """
        self._listen_s = listen_s
        self._downloader = downloader
        self._crowd = crowd
        self._clock = clock
        self._told_of = b""

    async def find_state(
        self,
        make_genesis: Callable[[], OuterState],
        *,
        wait_s: float,
        may_found: Callable[[], bool] = lambda: True,
    ) -> tuple[OuterState, bool]:
        """Download the state of the swarm, or make the genesis of a new one.

        Args:
            make_genesis: Makes the outer state of round 0; may refuse by raising.
            wait_s: Seconds without an answer after which a swarm of its own is started.
            may_found: Whether silence may mean that there is no swarm.

        Returns:
            The state, and whether it is a genesis made here.
        """
        started_at = self._clock.monotonic()
        listened_at: float | None = None
        while True:
            live = self._crowd.live()
            if self._holders():
                if listened_at is None:
                    listened_at = self._clock.monotonic() + self._listen_s
                state = await self._download(listened_at)
                if state is not None:
                    return state, False
                await self._clock.sleep(RETRY_S)
                started_at = self._clock.monotonic()  # there is a swarm: found none too soon
                continue
            if not may_found():
                started_at = self._clock.monotonic()
            waited_s = self._clock.monotonic() - started_at
            is_first = all(self._crowd.me < peer.node_id for peer in live)
            if may_found() and waited_s >= (wait_s if is_first else PATIENCE_FACTOR * wait_s):
                genesis = make_genesis()
                self._say_founding()
                return genesis, True
            await self._clock.sleep(LOOK_S)

    def _say_founding(self) -> None:
        logger.info("no swarm to be found: starting one (others join it at any time)")
        if strangers := self._crowd.strangers():
            logger.warning(
                "%s has this node's token, but trains another model or under another name: "
                "to join it, give the same network.name, training.model, dim, num_layers, "
                "num_heads and context, data of the same vocabulary, and the same weights of "
                "whatever is frozen",
                strangers[0].address,
            )

    async def wait_for_peers(self, wait_s: float) -> None:
        """Wait until a peer is heard of, at most so long.

        A node that comes back would else finish rounds on its own, apart from the swarm.
        """
        until = self._clock.monotonic() + wait_s
        while not self._crowd.live() and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_S)

    def _holders(self) -> list[Peer]:
        return [peer for peer in self._crowd.live() if peer.heartbeat.digest]

    async def _download(self, listened_at: float) -> OuterState | None:
        """The best state first, as it is at each try; liars hold nobody up long."""
        begun = await self._find_begun(listened_at)
        tried = set[bytes]()
        while len(tried) < MAX_TRIES:
            digests = [digest for digest, _ in rank_states(self._holders())]
            left = [d for d in ([begun, *digests] if begun else digests) if d not in tried]
            if not left:
                break
            digest = left[0]
            tried.add(digest)
            logger.info("joining the swarm: downloading state %s", short(digest))
            try:
                return await self._fetch(digest, listened_at)
            except NewerRules as error:
                self._say_newer(digest, error)
            except PeerError as error:
                logger.info("no state %s: %s", short(digest), error)
        return None

    def _say_newer(self, digest: bytes, error: NewerRules) -> None:
        """Once: it goes on trying, as whoever told of this state may be alone with it."""
        if digest != self._told_of:
            self._told_of = digest
            logger.warning("no state %s: %s", short(digest), error)

    async def _fetch(self, digest: bytes, listened_at: float) -> OuterState:
        """Download a state while the others are still listened for.

        Raises:
            PeerError: it is not to be had, or more peers hold another one.
        """
        candidates = Candidates(self._crowd.live, digest)
        rivals = Rivals(candidates, self._clock)
        if self._clock.monotonic() >= listened_at:
            return await self._downloader.fetch(digest, candidates, rivals)
        look = FirstLook(
            candidates, lambda: self._downloader.givers(digest), self._clock, listened_at
        )
        state = await self._downloader.fetch(digest, candidates, lambda: look() or rivals())
        await self._listen(listened_at)
        if look():
            await self._downloader.forget(digest)
            raise PeerUnreachable("it is there, but more peers hold another one")
        return state

    async def _listen(self, until: float) -> None:
        await self._clock.sleep(max(0.0, until - self._clock.monotonic()))

    async def _find_begun(self, listened_at: float) -> bytes | None:
        """What a former life began, if half as many peers serve it as hold the best state."""
        if not await self._downloader.has_unfinished():
            return None
        await self._listen(listened_at)
        ranked = rank_states(self._holders())
        num_best = min(len(ranked[0][1]), MAX_MANIFESTS) if ranked else 0
        num_wanted = max(1, (num_best + 1) // 2)
        return await self._downloader.unfinished(Candidates(self._crowd.live, b""), num_wanted)


def rank_states(holders: list[Peer]) -> list[tuple[bytes, list[PeerAddress]]]:
    """The digests that peers hold, each with its holders.

    First the one that most of them hold, the newest of equals.
    """
    rounds = {peer.heartbeat.digest: peer.heartbeat.round for peer in holders}
    counts = Counter(peer.heartbeat.digest for peer in holders)
    ranked = sorted(counts, key=lambda d: (counts[d], rounds[d], d), reverse=True)
    return [(d, [p.address for p in holders if p.heartbeat.digest == d]) for d in ranked]
