"""Asks a peer that is ahead or apart how rounds ended, and finds where this node should go.

Knows nothing of the round in progress; what it offers is carried out by the rounds driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import PeerError, PeerUnreachable, ProtocolViolation
from neuroswarm.gossip.asking import Asker, Result
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.donors import Candidates
from neuroswarm.node.replica import Replica
from neuroswarm.rounds.history import History
from neuroswarm.rounds.lineage import Claim, ClaimedRound, Comparison, compare
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.values import NodeId, PeerAddress, short

logger = logging.getLogger(__name__)

T = TypeVar("T")

HEAD_START_S = 0.5
"""So long a peer is asked for the end of one round before it is asked for its lineage as well:
mostly that is enough, but where messages are lost two questions in turn take too long."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where another lineage parts from this node's, and what was shown of it."""

    first_divergent_round: int
    last_common_round: int | None
    """Newest round of which both remember the same state; None without one."""
    claim: Claim


@dataclass(frozen=True, eq=False)
class Verdict:
    """A finished round to replay: its base is held here, its set is agreed."""

    base: OuterState
    result: Result
    source: PeerAddress
    fork: Fork | None = None
    """Where another lineage begins that it leads to; None if it is the same."""


@dataclass(frozen=True, eq=False)
class Download:
    """A state to go to that cannot be reached by replaying."""

    state: OuterState
    source: PeerAddress
    fork: Fork | None
    """Where its lineage parts from the one left; None if it is the same."""
    last_common_round: int | None
    """Newest round up to which both are known to be the same; None without one."""


Offer = Verdict | Download


class Inquirer:
    """Finds out from one peer at a time."""

    def __init__(
        self, downloader: StateDownloader, asker: Asker, *, crowd: Crowd, replica: Replica
    ) -> None:
        self._downloader = downloader
        self._asker = asker
        self._crowd = crowd
        self._replica = replica

    async def ask(self, peer: PeerAddress, history: History, quorum: int) -> Offer | None:
        """Where this node should go, by what that peer proves; None to stay.

        Args:
            peer: A live peer that is ahead or apart.
            history: This node's lineage.
            quorum: Confirm signers that cannot all be hostile.

        Raises:
            PeerError: the peer does not answer, or answers wrongly.

        Cancellation: what was downloaded stays on disk.
        """
        state = self._replica.state
        result, claim = await self._ask_first(peer, state, quorum)
        verdict = self._accept(result, peer, state, quorum)
        if verdict is not None:
            return verdict
        if isinstance(claim, PeerError):
            raise claim
        comparison = self._compare(history, claim)
        if comparison is None:
            return await self._catch_up(peer, claim, state, quorum)
        base = self._last_common_state(claim, comparison)
        result, claim = await self._ask_since(peer, comparison, state, base)
        comparison = self._compare(history, claim)
        if comparison is None:
            return None
        if not comparison.other_wins:
            _log_win(peer, comparison)
            return None
        _log_loss(peer, comparison, state)
        fork = Fork(comparison.first_divergent_round, comparison.last_common_round, claim)
        needed = min(self._crowd.trust_quorum, comparison.other_support)
        if base is self._last_common_state(claim, comparison):
            verdict = self._accept(result, peer, base, needed, fork)
            if verdict is not None:
                return verdict
        return await self._cross_over(peer, fork, needed)

    async def _ask_first(
        self, peer: PeerAddress, state: OuterState, quorum: int
    ) -> tuple[Result | PeerError | None, Claim | PeerError]:
        """How this node's round ended there, and the peer's lineage unless that is enough."""
        found: Result | PeerError | None = None
        has_answered = asyncio.Event()

        async def ask_result() -> None:
            nonlocal found
            found = await self._result(peer, state)
            has_answered.set()

        async def ask_lineage() -> Claim | PeerError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEAD_START_S):
                    await has_answered.wait()
            if self._accept(found, peer, state, quorum) is not None:
                return PeerUnreachable("not asked", peer=peer.node_id)
            return await _try(self._asker.lineage(0, state.round, peer))

        _, claim = await asyncio.gather(ask_result(), ask_lineage())
        return found, claim

    async def _ask_since(
        self, peer: PeerAddress, fork: Comparison, state: OuterState, base: OuterState | None
    ) -> tuple[Result | PeerError | None, Claim]:
        """How the round on `base` ended there, and the lineage from the fork on.

        Support counts from the fork on, hence again. Raises PeerError without a lineage.
        """
        since = max(0, fork.first_divergent_round - 1)
        result, claim = await asyncio.gather(
            self._result(peer, base), _try(self._asker.lineage(since, state.round, peer))
        )
        if isinstance(claim, PeerError):
            raise claim
        return result, claim

    def keep(self, offer: Offer | None, history: History | None) -> Offer | None:
        """What is left of an offer once this node has finished a round or moved: it, or None.

        It is kept if it leads away from this node's lineage, which still loses. Without this a
        node that finishes rounds of its own faster than it is answered would never leave for
        the others. An offer along the same lineage is void.
        """
        if offer is None or offer.fork is None or history is None:
            return None
        try:
            found = self._compare(history, offer.fork.claim)
        except ProtocolViolation:
            return None  # it is about a lineage left long ago
        if found is None or found.first_divergent_round < offer.fork.first_divergent_round:
            return None  # this node stands there already, or moved to where it parts earlier
        return offer if found.other_wins else None

    async def _result(
        self, peer: PeerAddress, base: OuterState | None
    ) -> Result | PeerError | None:
        if base is None:
            return None
        return await _try(self._asker.result(base.round, base.digest, peer))

    def _accept(
        self,
        result: Result | PeerError | None,
        peer: PeerAddress,
        base: OuterState | None,
        quorum: int,
        fork: Fork | None = None,
    ) -> Verdict | None:
        """A round to replay, if enough peers signed how it ended; ProtocolViolation for a lie."""
        if isinstance(result, ProtocolViolation):
            raise result
        if result is None or base is None or isinstance(result, PeerError):
            return None
        signers = {confirm.signer for confirm in result.confirms}
        if sum(map(self._is_counted, signers)) < quorum:
            return None
        return Verdict(base, result, peer, fork)

    def _last_common_state(self, claim: Claim, parted: Comparison) -> OuterState | None:
        """The state from which both lineages go on, if it is still held here."""
        last_common = parted.first_divergent_round - 1
        found = next((f for f in claim.finished if f.round == last_common), None)
        return None if found is None else self._replica.find_state(found.base_digest)

    async def _catch_up(
        self, peer: PeerAddress, claim: Claim, state: OuterState, quorum: int
    ) -> Download | None:
        """This node is on the same lineage, too far behind to replay."""
        if claim.round <= state.round:
            return None
        target = self._supported_state(claim, quorum, after=state.round)
        if target is None:
            raise ProtocolViolation("a state that too few peers stand for", peer=peer.node_id)
        return await self._download(peer, target.base_digest, None, state.round)

    async def _cross_over(self, peer: PeerAddress, fork: Fork, needed: int) -> Download:
        digest = self._newest_held(fork.claim, needed, since=fork.first_divergent_round)
        if digest is None:
            raise ProtocolViolation("a state that too few peers stand for", peer=peer.node_id)
        return await self._download(peer, digest, fork, fork.last_common_round)

    def _newest_held(self, claim: Claim, needed: int, *, since: int) -> bytes | None:
        """The newest claimed state that enough peers signed for, or were heard to stand on."""
        signers = {f.base_digest: f.signers for f in claim.finished}
        states = [(claim.round, claim.digest)]
        states += [(f.round, f.base_digest) for f in reversed(claim.finished)]
        for round_, digest in states:
            voices = self._crowd.positions.adherents([digest]) | signers.get(digest, frozenset())
            if round_ >= since and sum(map(self._is_counted, voices)) >= needed:
                return digest
        return None

    async def _download(
        self, peer: PeerAddress, digest: bytes, fork: Fork | None, last_common: int | None
    ) -> Download:
        """From that peer and all others that may hold the state."""
        logger.info("downloading state %s, of %s", short(digest), peer.node_id)
        candidates = Candidates(self._crowd.live, digest, known={peer.node_id})
        state = await self._downloader.fetch(digest, candidates)
        await self._downloader.forget(digest)  # this node restarts from a checkpoint of its own
        return Download(state, peer, fork, last_common)

    def _supported_state(self, claim: Claim, quorum: int, *, after: int) -> ClaimedRound | None:
        """The newest round after `after` whose base digest enough known peers signed for."""
        later = [f for f in claim.finished if f.round > after]
        supported = [f for f in later if sum(map(self._is_counted, f.signers)) >= quorum]
        return supported[-1] if supported else None

    def _compare(self, history: History, claim: Claim) -> Comparison | None:
        return compare(history, claim, _Heard(self._crowd, self._replica.state, history.digest))

    def _is_counted(self, signer: NodeId) -> bool:
        return self._crowd.is_counted(signer, self._replica.state)


@dataclass(frozen=True, slots=True)
class _Heard:
    """`lineage.Audience`: the peers as this node knows them, itself among them."""

    crowd: Crowd
    state: OuterState
    """Of this node."""
    digest: bytes
    """Of its newest round."""

    @property
    def quorum(self) -> int:
        return self.crowd.trust_quorum

    def is_counted(self, signer: NodeId) -> bool:
        return self.crowd.is_counted(signer, self.state)

    def adherents(self, digests: Collection[bytes]) -> frozenset[NodeId]:
        me = frozenset([self.crowd.me]) if self.digest in digests else frozenset[NodeId]()
        return self.crowd.positions.adherents(digests) | me

    def is_most(self, digests: Collection[bytes]) -> bool:
        there, live = self.crowd.count_on(digests)
        return live > 0 and 3 * (there + (self.digest in digests)) >= 2 * (live + 1)


async def _try(call: Coroutine[Any, Any, T]) -> T | PeerError:
    """What a peer answers, or why it does not."""
    try:
        return await call
    except PeerError as error:
        return error


def _log_win(peer: PeerAddress, comparison: Comparison) -> None:
    logger.info(
        "round %d parted from %s: this node's lineage goes before, confirmed by %d peers against "
        "%d there; it is for the others to come over",
        comparison.first_divergent_round,
        peer.node_id,
        comparison.own_support,
        comparison.other_support,
    )


def _log_loss(peer: PeerAddress, comparison: Comparison, state: OuterState) -> None:
    logger.warning(
        "round %d parted from %s: its lineage goes before, confirmed by %d peers against %d here; "
        "to leave for it: state %s of round %d",
        comparison.first_divergent_round,
        peer.node_id,
        comparison.other_support,
        comparison.own_support,
        short(state.digest),
        state.round,
    )
