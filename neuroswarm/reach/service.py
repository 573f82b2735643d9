"""Asks peers to call this node back, for as long as it lives, and says what they found.

Refuses to know what is done about it: relays are taken elsewhere.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.membership.addresses import is_same_host
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.verdicts import Verdicts
from neuroswarm.reach.cut_off import CutOff
from neuroswarm.reach.dialling import DIAL, DIAL_TIMEOUT_S, DialBack
from neuroswarm.service import Service
from neuroswarm.transport import Rpc
from neuroswarm.v1 import reach_pb2
from neuroswarm.values import NodeId, Reach
from neuroswarm.wire.reaching import DialReply, decode_dial_reply

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at who is to be asked."""

RETRY_S = 5.0
"""Seconds before a peer that did not answer is asked again."""

TRY_AGAIN_S = 120.0
"""Seconds between two calls straight to a peer that has relays."""

MAX_ASKED_AT_ONCE = 4

MAX_HOSTS_TOLD = 4
"""Hosts that are named in the log as not announced: peers make them up as they like."""

_ANSWER_TIMEOUT_S = 2.5 * DIAL_TIMEOUT_S


class ReachService(Service):
    """Keeps the verdicts fresh."""

    name = "reach"

    def __init__(
        self,
        rpc: Rpc,
        peers: PeerTable,
        *,
        announced: Callable[[], Collection[str]],
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Wire it up; before the transport starts.

        Args:
            rpc: Carries the calls.
            peers: Who may be asked.
            announced: Hosts at which this node says to be now.
            clock: Tells the time and waits.
            on_change: Called when the answer to "is it reached" changes.
        """
        super().__init__()
        self._rpc = rpc
        self._peers = peers
        self._announced = announced
        self._clock = clock
        self._on_change = on_change
        self._retry_at: dict[NodeId, float] = {}
        self._cut_off = CutOff()
        self._num_known = 0
        self._asking: set[NodeId] = set()
        self._tried_at: dict[NodeId, float] = {}
        self._random = random.Random(peers.me)
        self.dial_back = DialBack(rpc, peers, clock=clock)
        self.verdicts = Verdicts()
        self._hosts_told: set[str] = set()
        self.reason = ""
        """Why a peer did not reach this node last."""

    @property
    def reach(self) -> Reach:
        """Whether others reach this node."""
        return self.verdicts.reach

    def try_straight(self, peer: Peer) -> None:
        """See, now and then, whether a peer that has relays can be called without."""
        now = self._clock.monotonic()
        if now < self._tried_at.get(peer.node_id, now) or len(self._asking) >= MAX_ASKED_AT_ONCE:
            return
        self._tried_at[peer.node_id] = now + TRY_AGAIN_S
        self._asking.add(peer.node_id)
        self._spawn(self._try(peer))

    def get_status(self) -> dict[str, object]:
        """The part of `/status` on it."""
        verdicts, reach = self.verdicts, self.reach
        return {
            "reachable": None if reach is Reach.UNKNOWN else reach is Reach.OPEN,
            "reached_by": verdicts.reached_by,
            "missed_by": sorted(map(str, verdicts.missed_by)),
            "missed_reason": self.reason if verdicts.missed_by else None,
            "calls_back": self.dial_back.num_dialled,
        }

    async def _open(self, stack: AsyncExitStack) -> None:
        """Nothing to open: the transport is the node's."""

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._ask_around(),)

    async def _ask_around(self) -> None:
        while True:
            now = self._clock.monotonic()
            known = [p for p in self._peers.all(now) if _is_called(p)]
            self._forget_all_but({peer.node_id for peer in known}, now)
            for peer in known:
                if peer.heartbeat.relays and peer.is_dialled is not False:
                    self.try_straight(peer)  # for the first time, or to see that it still works
            for peer in self._choose(known, now):
                self._asking.add(peer.node_id)
                self._spawn(self._ask(peer))
            self._num_known = len(known) or self._num_known
            self._say_if_cut_off(known, now)
            await self._clock.sleep(LOOK_S)

    def _choose(self, known: list[Peer], now: float) -> list[Peer]:
        """Peers whose word is wanted now, a few of them."""
        due = [
            peer
            for peer in known
            if peer.node_id not in self._asking
            and self.verdicts.is_due(peer.node_id, now)
            and now >= self._retry_at.get(peer.node_id, now)
        ]
        num = min(MAX_ASKED_AT_ONCE - len(self._asking), len(due))
        return self._random.sample(due, num)

    async def _ask(self, peer: Peer) -> None:
        try:
            reply = await self._call(peer)
        except PeerError as error:
            now = self._clock.monotonic()
            if isinstance(error, PeerUnreachable):
                self._cut_off.failed(peer.node_id, now)
            else:
                self._cut_off.answered(peer.node_id)  # it answers, only not to this
            self._retry_at[peer.node_id] = now + RETRY_S
            return
        finally:
            self._asking.discard(peer.node_id)
        before, now = self.reach, self._clock.monotonic()
        self._cut_off.answered(peer.node_id)
        self.verdicts.note(peer.node_id, reply.reached_host, now)
        self.reason = reply.reason or self.reason
        self._note_change(before)
        if reply.reached_host:
            self._say_if_elsewhere(reply.reached_host)

    async def _try(self, peer: Peer) -> None:
        try:
            await self.dial_back.reaches(peer.address)
        finally:
            self._asking.discard(peer.node_id)

    async def _call(self, peer: Peer) -> DialReply:
        request = reach_pb2.DialRequest().SerializeToString()
        answer = await self._rpc.call(peer.address, DIAL, request, timeout_s=_ANSWER_TIMEOUT_S)
        return decode_dial_reply(answer)

    def _forget_all_but(self, known: set[NodeId], now: float) -> None:
        before = self.reach
        self.verdicts.forget_gone(known, now)
        self._retry_at = {id_: at for id_, at in self._retry_at.items() if id_ in known}
        self._tried_at = {id_: at for id_, at in self._tried_at.items() if id_ in known}
        self._note_change(before)

    def _note_change(self, before: Reach) -> None:
        if self.reach is before:
            return
        if self.reach is Reach.CLOSED:
            logger.warning(
                "other nodes do not reach this one (%s): a router or firewall is in the way; "
                "peers that are reached relay for it",
                self.reason,
            )
        elif self.reach is Reach.OPEN:
            logger.info("other nodes reach this one")
        self._on_change()

    def _say_if_elsewhere(self, host: str) -> None:
        """Whoever only knows what this node announces does not find it there."""
        announced = self._announced()
        if host in self._hosts_told or any(is_same_host(host, other) for other in announced):
            return
        if len(self._hosts_told) < MAX_HOSTS_TOLD:
            self._hosts_told.add(host)
            logger.warning(
                "peers reach this node at %s, and not where it says to be (%s): correct --announce "
                "(or give --announce %s)",
                host,
                ", ".join(announced),
                host,
            )

    def _say_if_cut_off(self, known: list[Peer], now: float) -> None:
        if self._cut_off.look({peer.node_id for peer in known}, now):
            logger.warning(
                "no reachable peer; need one public node: %d known, none answers (start a node "
                "where others can connect to it, or forward a port of a router and set "
                "--announce)",
                self._num_known,
            )


def _is_called(peer: Peer) -> bool:
    return bool(peer.heartbeat.grpc_port) and not peer.heartbeat.is_leaving
