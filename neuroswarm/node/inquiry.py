"""Asks a peer that is ahead or apart how rounds ended, and finds where this node should go.

Knows nothing of the round in progress; what it offers is carried out by the rounds driver.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import ProtocolViolation
from neuroswarm.gossip.asking import Asker, Result
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.donors import Candidates
from neuroswarm.node.replica import Replica
from neuroswarm.rounds.history import History
from neuroswarm.rounds.lineage import Claim, ClaimedRound, Comparison, compare
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.values import NodeId, PeerAddress, short

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fork:
    """Where another lineage parts from this node's, and what was shown of it."""

    first_divergent_round: int
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
        offer = await self._replay(peer, state, quorum)
        if offer is not None:
            return offer
        claim = await self._asker.lineage(0, state.round, peer)
        comparison = self._compare(history, claim)
        if comparison is None:
            return await self._catch_up(peer, claim, state, quorum)
        # Support counts from the fork on, so ask again from there.
        since = max(0, comparison.first_divergent_round - 1)
        claim = await self._asker.lineage(since, state.round, peer)
        comparison = self._compare(history, claim)
        if comparison is None or not comparison.other_wins:
            return None
        _log_loss(peer, comparison, state)
        return await self._cross_over(peer, claim, comparison)

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

    async def _replay(
        self, peer: PeerAddress, base: OuterState, quorum: int, fork: Fork | None = None
    ) -> Verdict | None:
        result = await self._asker.result(base.round, base.digest, peer)
        if result is None:
            return None
        signers = {confirm.signer for confirm in result.confirms}
        if sum(map(self._is_counted, signers)) < quorum:
            return None
        return Verdict(base, result, peer, fork)

    async def _catch_up(
        self, peer: PeerAddress, claim: Claim, state: OuterState, quorum: int
    ) -> Download | None:
        """This node is on the same lineage, too far behind to replay."""
        if claim.round <= state.round:
            return None
        target = self._supported_state(claim, quorum, after=state.round)
        if target is None:
            raise ProtocolViolation("a state that too few peers stand for", peer=peer.node_id)
        return await self._download(peer, target.base_digest, fork=None)

    async def _cross_over(self, peer: PeerAddress, claim: Claim, lost: Comparison) -> Offer:
        needed = min(self._crowd.trust_quorum, lost.other_support)
        fork = Fork(lost.first_divergent_round, claim)
        last_common = fork.first_divergent_round - 1
        found = next((f for f in claim.finished if f.round == last_common), None)
        base = None if found is None else self._replica.find_state(found.base_digest)
        if base is not None:
            verdict = await self._replay(peer, base, needed, fork)
            if verdict is not None:
                return verdict
        digest = self._newest_held(claim, needed, since=fork.first_divergent_round)
        if digest is None:
            raise ProtocolViolation("a state that too few peers stand for", peer=peer.node_id)
        return await self._download(peer, digest, fork=fork)

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

    async def _download(self, peer: PeerAddress, digest: bytes, *, fork: Fork | None) -> Download:
        """From that peer and all others that may hold the state."""
        logger.info("downloading state %s, of %s", short(digest), peer.node_id)
        candidates = Candidates(self._crowd.live, digest, known={peer.node_id})
        state = await self._downloader.fetch(digest, candidates)
        await self._downloader.forget(digest)  # this node restarts from a checkpoint of its own
        return Download(state, peer, fork)

    def _supported_state(self, claim: Claim, quorum: int, *, after: int) -> ClaimedRound | None:
        """The newest round after `after` whose base digest enough known peers signed for."""
        later = [f for f in claim.finished if f.round > after]
        supported = [f for f in later if sum(map(self._is_counted, f.signers)) >= quorum]
        return supported[-1] if supported else None

    def _compare(self, history: History, claim: Claim) -> Comparison | None:
        heard, me = self._crowd.positions.adherents, frozenset([self._crowd.me])

        def adherents(digests: Collection[bytes]) -> frozenset[NodeId]:
            return heard(digests) | (me if history.digest in digests else frozenset())

        return compare(
            history,
            claim,
            self._is_counted,
            adherents=adherents,
            quorum=self._crowd.trust_quorum,
        )

    def _is_counted(self, signer: NodeId) -> bool:
        return self._crowd.is_counted(signer, self._replica.state)


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
