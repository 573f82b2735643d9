"""The peers of this swarm as the rounds and the gossip see them: targets, voters, standings.

Knows nothing of statements or of states; refuses to do I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from neuroswarm.clock import Clock
from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import BadSignature, NonFiniteValues, PeerError, WrongPayload
from neuroswarm.membership.claims import find_excess
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.node.peer_versions import PeerVersions
from neuroswarm.node.voices import Voices
from neuroswarm.rounds.electorate import Electorate
from neuroswarm.rounds.held_out import HeldOutFigures
from neuroswarm.rounds.history import History
from neuroswarm.rounds.positions import Positions, Standing
from neuroswarm.values import PROTOCOL_VERSION, NodeId, PeerAddress
from neuroswarm.wire.messages import Contribution

logger = logging.getLogger(__name__)

REPLAYS_PER_S = 0.1
"""Replays that count against a peer: with the weight and half-life of replays, below a ban."""

MAX_ROUNDS_BEHIND = 2
"""A live peer further behind is catching up: nobody waits for it."""


_OFFENCES: Mapping[type[PeerError], Offence] = {
    BadSignature: Offence.BAD_SIGNATURE,
    WrongPayload: Offence.WRONG_PAYLOAD,
    NonFiniteValues: Offence.NON_FINITE,
}


class Crowd:
    """Live peers with the same swarm id."""

    def __init__(
        self,
        peers: PeerTable,
        swarm_id: bytes,
        clock: Clock,
        *,
        mute_after_s: float,
        protocol: int = PROTOCOL_VERSION,
    ) -> None:
        self.me = peers.me
        self.swarm_id = swarm_id
        self.versions = PeerVersions(protocol)
        self.positions = Positions()
        self.held_out = HeldOutFigures(peers.me)
        self.voices = Voices(mute_after_s)
        self._claimed_at: dict[NodeId, float] = {}
        self._replays: TokenBuckets[NodeId] = TokenBuckets(per_s=REPLAYS_PER_S, burst=1.0)
        self._peers = peers
        self._clock = clock

    # -- the gossip's Neighbours -----------------------------------------------------

    def targets(self) -> Sequence[PeerAddress]:
        """Live peers of this swarm."""
        return [peer.address for peer in self.live()]

    def answered(self, peer: NodeId, rtt_s: float) -> None:
        """A call was answered after that many seconds."""
        now = self._clock.monotonic()
        self._peers.record_rtt(peer, rtt_s, now)
        self._peers.touch(peer, now)

    def failed(self, peer: NodeId) -> None:
        """A call was not answered."""
        self._peers.suspect(peer, self._clock.monotonic())

    def on_leaving(self, callback: Callable[[NodeId], None]) -> None:
        """Have it called whenever a peer says that it stops."""
        self._peers.on_leaving(callback)

    # -- what rounds ask -------------------------------------------------------------

    def live(self) -> list[Peer]:
        """Live peers of this swarm, by node id."""
        everybody = self._peers.alive(self._clock.monotonic(), self.swarm_id)
        return self.versions.of_ours(everybody)

    def apart(self) -> list[Peer]:
        """Live peers of this swarm that speak no protocol version of this node's."""
        everybody = self._peers.alive(self._clock.monotonic(), self.swarm_id)
        return self.versions.of_others(everybody)

    def describe_versions(self) -> Mapping[str, object]:
        """The part of `/status` on protocol versions, as JSON values."""
        return self.versions.get_status(self.live(), self.apart())

    def require_known(self, rules: Rules) -> None:
        """PeerError if live peers do not know a rule that these rules name."""
        lowest = self.versions.lowest(self.live())
        if rules.protocol > lowest:
            raise PeerError(
                f"these rules need protocol {rules.protocol}, and some nodes speak {lowest} only: "
                "upgrade them first (`protocol` in /peers says which)"
            )

    def strangers(self) -> list[Peer]:
        """Live peers of other swarms with the same token, by node id."""
        everybody = self._peers.alive(self._clock.monotonic())
        return [peer for peer in everybody if peer.heartbeat.swarm_id != self.swarm_id]

    def update_positions(self) -> None:
        """Take over the positions and figures of the newest heartbeats."""
        live = self.live()
        self.voices.forget_all_but(peer.node_id for peer in live)
        self._claimed_at = {n: at for n, at in self._claimed_at.items() if self.is_known(n)}
        for peer in live:
            beat = peer.heartbeat
            self.positions.note_heartbeat(peer.node_id, beat.sequence, beat.round, beat.digest)
            self.held_out.note(peer.node_id, beat.evaluated, beat.held_out_loss)

    def electorate(
        self,
        history: History,
        state: OuterState,
        *,
        with_me: bool,
        silent: frozenset[NodeId],
        steps_wanted: int,
    ) -> Electorate:
        """Who counts in the round on `state`.

        Live training peers of this lineage that are at most `MAX_ROUNDS_BEHIND` rounds behind
        and not mute, and this node if it trains.
        """
        voters, now = {self.me} if with_me else set(), self._clock.monotonic()
        for peer in self._training():
            is_mute = self.voices.is_mute(peer, state.round, steps_wanted, now)
            if not is_mute and self._takes_part(peer.node_id, history):
                voters.add(peer.node_id)
        recent = applied.identities(state.applied, state.round)
        return Electorate(frozenset(voters), silent & voters, len(recent))

    def _training(self) -> list[Peer]:
        """Those of `live` that take part in rounds."""
        return [peer for peer in self.live() if peer.heartbeat.is_training]

    def _takes_part(self, node_id: NodeId, history: History) -> bool:
        standing = self.positions.standing(node_id, history)
        if standing in (Standing.UNKNOWN, Standing.APART):
            return False
        return self.positions.rounds_behind(node_id, history) <= MAX_ROUNDS_BEHIND

    def steps_s(self, of: Container[NodeId]) -> list[float]:
        """Seconds of a first step at each training peer among these; 0: it was not measured."""
        return [p.heartbeat.start_step_s for p in self._training() if p.node_id in of]

    def has_voters(self) -> bool:
        """Whether another live peer of this swarm takes part in rounds."""
        return bool(self._training())

    def newest_round(self) -> int | None:
        """The newest round that one of them holds a state of; None without any."""
        return max((peer.heartbeat.round for peer in self._training()), default=None)

    def is_known(self, signer: NodeId) -> bool:
        """Whether it is this node or a peer that this node has heard a heartbeat of lately."""
        return signer == self.me or self._peers.get(signer) is not None

    def is_counted(self, signer: NodeId, state: OuterState) -> bool:
        """Whether a signer's confirm supports a lineage: a node that this one knows itself.

        Anyone can make up keys and sign with them; a peer that is heard of, or whose
        contributions were agreed lately, is at least somebody.
        """
        if self.is_banned(signer):
            return False
        return self.is_known(signer) or signer in state.applied

    @property
    def trust_quorum(self) -> int:
        """Signers that cannot all be hostile, of all that are heard of: floor(n/4) + 1."""
        return (len(self._training()) + 1) // 4 + 1

    def slowest_rtt_s(self, voters: frozenset[NodeId]) -> float | None:
        """Round trip to the slowest of the voters; None while one is not measured."""
        rtts = [peer.rtt_s for peer in self.live() if peer.node_id in voters]
        known = [rtt for rtt in rtts if rtt is not None]
        return max(known, default=0.0) if len(known) == len(rtts) else None

    def ahead_or_apart(self, history: History, patience_s: float) -> list[PeerAddress]:
        """Live peers that have been ahead of this node, or apart from it, for that long.

        If nobody is at this node's state or beyond, or was lately, those are asked too that are
        in rounds which it does not know: it may be the one that is lost.
        """
        now = self._clock.monotonic()
        stands = [(p, *self.positions.lasting(p.node_id, history, now)) for p in self.live()]
        wanted = {Standing.AHEAD, Standing.APART}
        if stands and all(self._is_elsewhere(p.node_id, history) for p, _, _ in stands):
            wanted.add(Standing.BEHIND)
        return [p.address for p, standing, s in stands if standing in wanted and s >= patience_s]

    def count_sides(self, history: History, patience_s: float) -> tuple[int, int]:
        """Live training peers on this lineage, and those that have long been ahead or apart.

        Args:
            history: This node's lineage.
            patience_s: Seconds for which a peer must have been elsewhere to be counted so.
        """
        now = self._clock.monotonic()
        stands = [self.positions.lasting(p.node_id, history, now) for p in self._training()]
        here = sum(standing in (Standing.LEVEL, Standing.BEHIND) for standing, _ in stands)
        elsewhere = {Standing.AHEAD, Standing.APART}
        return here, sum(where in elsewhere and s >= patience_s for where, s in stands)

    def count_on(self, digests: Collection[bytes]) -> tuple[int, int]:
        """Live training peers that stand on one of these states now, and all of them."""
        training = self._training()
        there = sum(self.positions.stands_on(peer.node_id, digests) for peer in training)
        return there, len(training)

    def _is_elsewhere(self, node_id: NodeId, history: History) -> bool:
        standing = self.positions.standing(node_id, history)
        is_behind = standing is Standing.BEHIND
        return is_behind and node_id not in self.positions.adherents(history.digests_since(0))

    def sources(self, *preferred: NodeId) -> list[PeerAddress]:
        """Live peers to pull from, the preferred ones first."""
        order = {node_id: rank for rank, node_id in reversed(list(enumerate(preferred)))}
        targets = self.targets()
        return sorted(targets, key=lambda peer: order.get(peer.node_id, len(preferred)))

    def is_banned(self, node_id: NodeId) -> bool:
        """Whether nothing that this signer says counts: banned, or of a version too far off."""
        peer = self._peers.get(node_id)
        is_foreign = peer is not None and not self.versions.speaks_with(peer)
        return is_foreign or self._peers.is_banned(node_id, self._clock.monotonic())

    def offend(self, node_id: NodeId, offence: Offence) -> None:
        """Count what an authenticated party did; too much of it bans it for a while.

        A late honest peer, whose link comes back, brings many old statements at once: replays
        are noted once in a while, so that they alone ban nobody.
        """
        now = self._clock.monotonic()
        if offence is Offence.REPLAY and not self._replays.allows(node_id, now):
            return
        if self._peers.offend(node_id, offence, now):
            logger.warning("peer %s banned for a while: too much of %s", node_id, offence)

    def misbehaved(self, peer: NodeId, error: PeerError) -> None:
        """A caller brought what no honest peer passes on."""
        self.offend(peer, _OFFENCES.get(type(error), Offence.MALFORMED))

    def knows_better(self, node_id: NodeId, round_: int) -> bool:
        """Whether a peer said itself that it is beyond that round."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.heartbeat.round > round_

    def check_claim(self, signer: NodeId, header: Contribution) -> None:
        """Hold it against a signer if it claims more work than its own heartbeats allow."""
        now, peer = self._clock.monotonic(), self._peers.get(signer)
        before = self._claimed_at.get(signer)
        if peer is None:
            return
        self._claimed_at[signer] = now
        if before is None:
            return  # nobody knows since when it has trained
        excess = find_excess(
            header,
            peer.heartbeat,
            elapsed_s=now - before,
            # Other signs of life renew `last_seen_s`, so it is no age of the heartbeat.
            heartbeat_age_s=now - before,
        )
        if excess is not None:
            logger.warning("peer %s claims more than it can have done: %s", signer, excess)
            self.offend(signer, Offence.IMPLAUSIBLE_CLAIM)

    def is_banned_for_good(self, node_id: NodeId) -> bool:
        """Whether it was proven to be hostile."""
        return self._peers.is_banned_for_good(node_id)

    def expel(self, node_ids: frozenset[NodeId]) -> None:
        """Refuse exactly these by the swarm's rules, besides those that are banned."""
        self._peers.expel(node_ids)

    def ban(self, node_id: NodeId, reason: str) -> None:
        """Refuse a signer for good: it is proven to be hostile."""
        self._peers.ban(node_id, reason, None)
