"""How peers that are not reached straight are called, and through whom this node is reached itself.

Knows which peers need a relay; how pipes work is known in `neuroswarm.relay`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.config.sections import RelayConfig
from neuroswarm.errors import PeerUnreachable
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.carriers import Carriers
from neuroswarm.reach.service import ReachService
from neuroswarm.relay.desk import RelayDesk
from neuroswarm.relay.lines import RelayLines
from neuroswarm.relay.session import PipeEnd
from neuroswarm.relay.switchboard import Switchboard
from neuroswarm.values import NodeId, PeerAddress, Reach

logger = logging.getLogger(__name__)


class Paths:
    """`transport.Pipes`: which peers need a relay, and which of theirs is taken."""

    def __init__(
        self, peers: PeerTable, reach: ReachService, lines: RelayLines, *, clock: Clock
    ) -> None:
        self._peers = peers
        self._reach = reach
        self._lines = lines
        self._clock = clock
        self._last: dict[NodeId, PipeEnd] = {}

    def needs_pipe(self, peer: NodeId) -> bool:
        """Whether a peer is called through a relay, as nothing else has worked."""
        known = self._peers.get(peer)
        return known is not None and known.needs_relay

    async def open(self, peer: NodeId) -> PipeEnd:
        """Begin a pipe through one of a peer's relays; the one that led nowhere last comes last.

        Raises:
            PeerUnreachable: the peer has no relay that can be called.
        """
        known = self._peers.get(peer)
        if known is None:
            raise PeerUnreachable("its relays are not known any more", peer=peer)
        self._reach.try_straight(known)
        last = self._last.get(peer)
        is_dead_end = last is not None and last.is_over and not last.has_received
        avoided = last.relay if last is not None and is_dead_end else None
        relays = sorted(known.heartbeat.relays, key=lambda relay: relay == avoided)
        pipe = self._lines.open(peer, relays)
        self._last = {id_: end for id_, end in self._last.items() if self._peers.get(id_)}
        self._last[peer] = pipe
        return pipe

    def find_relay(self, relay: NodeId) -> PeerAddress | None:
        """Where a relay is called; None if it is not known or needs one itself."""
        peer = self._peers.get(relay)
        if peer is None or peer.needs_relay or peer.heartbeat.is_leaving:
            return None
        return peer.address

    def choose_relays(self) -> Sequence[NodeId]:
        """Whom this node may be reached through, best first; empty if it needs nobody.

        Those that could not call it themselves come first: they are outside, where others are.
        """
        missed_by = self._reach.verdicts.missed_by
        if not missed_by:
            return ()
        alive = self._peers.alive(self._clock.monotonic())
        able = [peer for peer in alive if _may_relay(peer)]
        return [p.node_id for p in sorted(able, key=lambda peer: self._rank(peer, missed_by))]

    def may_keep(self, relay: NodeId) -> bool:
        """Whether this node may go on being reached through a relay that answers.

        Also one whose heartbeats get lost: that it answers says more.
        """
        peer = self._peers.get(relay)
        is_fit = peer is None or (_may_relay(peer) and not peer.heartbeat.is_leaving)
        return is_fit and bool(self._reach.verdicts.missed_by)

    def _rank(self, peer: Peer, missed_by: frozenset[NodeId]) -> tuple[bool, bool, bytes]:
        """By lot among equals, so that not all nodes take the same relays."""
        lot = hashlib.sha256(self._peers.me + peer.node_id).digest()
        is_open = peer.heartbeat.reach is Reach.OPEN
        return peer.node_id not in missed_by, not is_open, lot


def _may_relay(peer: Peer) -> bool:
    """Whether most reach it; who has relays all the same is missed by few, or says so only."""
    beat = peer.heartbeat
    is_unknown = beat.reach is Reach.UNKNOWN and not beat.relays
    return (beat.reach is Reach.OPEN or is_unknown) and bool(beat.swarm_id) and beat.grpc_port > 0


def _blame(peers: PeerTable, caller: NodeId, now: float) -> None:
    if peers.offend(caller, Offence.MALFORMED, now):
        logger.warning("peer %s banned for a while: frames that no node makes", caller)


@dataclass(frozen=True, slots=True)
class Relaying:
    """This node as a relay, and its own ways through others."""

    desk: RelayDesk
    lines: RelayLines
    paths: Paths

    def get_status(self) -> Mapping[str, object]:
        """The part of `/status` on it."""
        return {
            "relays": [relay.hex() for relay in self.lines.relays],
            "pipes": self.lines.num_pipes,
            "relayed": self.desk.get_status(),
        }


def assemble_relaying(
    config: RelayConfig,
    carriers: Carriers,
    reach: ReachService,
    peers: PeerTable,
    *,
    clock: Clock,
) -> Relaying:
    """Wire it up; before the carriers start."""
    desk = RelayDesk(
        config,
        carriers.rpc,
        Switchboard(),
        blame=lambda caller: _blame(peers, caller, clock.monotonic()),
        clock=clock,
    )
    # The lines look for relays where the paths say, which open pipes on the lines: bound late.
    room: list[Paths] = []
    lines = RelayLines(
        carriers.rpc,
        desk,
        me=peers.me,
        find=lambda relay: room[0].find_relay(relay),
        clock=clock,
    )
    paths = Paths(peers, reach, lines, clock=clock)
    room.append(paths)
    lines.candidates, lines.may_keep = paths.choose_relays, paths.may_keep
    lines.on_pipe = carriers.accept
    carriers.use_pipes(paths)
    return Relaying(desk, lines, paths)
