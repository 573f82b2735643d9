"""Follows all hints at once, for as long as the node lives: nobody is too late to be found.

Refuses to know what the peers are for; they go into the peer table.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from neuroswarm.clock import Clock
from neuroswarm.discovery.hint import WAYS, Hint, Way
from neuroswarm.discovery.host_names import Lookup
from neuroswarm.discovery.tracker_asker import TrackerAsker
from neuroswarm.discovery.tracker_messages import Reply
from neuroswarm.errors import AdmissionError, PeerError, PeerUnreachable
from neuroswarm.membership.own_record import Hearing
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.service import Service
from neuroswarm.values import Endpoint, counted

logger = logging.getLogger(__name__)

REFRESH_S = 30.0
"""Seconds between two requests to a tracker that answers, once there are peers."""

LOOK_UP_S = 10.0
"""Seconds between two look-ups of a peer or a name, which greet whoever is new there."""

ALONE_S = 3.0
"""Both while no peer is known."""

RETRY_FIRST_S = 0.5
RETRY_MAX_S = 15.0
GREET_MAX_S = 5.0
"""Wait after the first failure; it doubles up to the longest, which is shorter where a datagram is
all that it takes: the last one may just have been lost."""

GREETING_S = 1.0
"""Time for the answer to a greeting, before a node whose HTTP is silent counts as away."""

SAY_ALONE_S = 2.0
"""Seconds without any hint and without a peer after which that is said."""

MAX_ASKED = 3
"""Addresses of one name that are asked over HTTP in one try; all of them are greeted."""

_LINE_EVERY_S = 60.0
_JITTER = 0.25


class Greeter(Protocol):
    """Sends heartbeats."""

    def greet(self, endpoints: Iterable[Endpoint], *, is_given: bool = False) -> None:
        """Tell this node's record once to where peers may be."""
        ...

    def announce_now(self) -> None:
        """Tell all known peers at once."""
        ...


class Search(Service):
    """One loop a hint: look up, greet, ask, feed the peer table, wait, again.

    Failure only makes it wait. Without a hint it says how to give one.
    """

    name = "search"

    def __init__(
        self,
        hints: Sequence[Hint],
        *,
        asker: TrackerAsker,
        greeter: Greeter,
        peers: PeerTable,
        lookup: Lookup,
        clock: Clock,
    ) -> None:
        """Wire it up.

        Args:
            hints: Ways to others; may be empty.
            asker: Asks trackers; started and stopped with this service.
            greeter: Greets nodes, and tells all peers when an answer named a new one.
            peers: Where answers go.
            lookup: Finds the addresses of names.
            clock: Tells the time and waits.
        """
        super().__init__()
        self._hints = tuple(hints)
        self.asker = asker
        """Asks trackers over HTTP."""
        self._record = asker.record
        self._greeter = greeter
        self._peers = peers
        self._lookup = lookup
        self._clock = clock
        self._random = random.Random(self._record.node_id)
        self._quiet_until = -_LINE_EVERY_S
        self._first_answer = asyncio.Event()
        self.observed_host: str | None = None
        """This node's address as a tracker saw it last."""

    @property
    def has_hints(self) -> bool:
        """Whether there is anything to follow."""
        return bool(self._hints)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each hint, for `announce.find_hosts`."""
        return tuple(dict.fromkeys(hint.endpoint.host for hint in self._hints))

    async def wait_first_answer(self, timeout_s: float) -> bool:
        """Wait until some hint has led to somebody.

        Returns:
            Whether one did within `timeout_s`; False at once if there are no hints.
        """
        if not self._hints:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._first_answer.wait()
        except TimeoutError:
            return False
        return True

    def require_admission(self) -> None:
        """AdmissionError if every hint refuses this node's token, so that it is a wrong one."""
        if self._hints and all(hint.is_refusing for hint in self._hints):
            raise AdmissionError(
                f"no way into the swarm: {self._failures()}; give the token of its swarm"
            )

    def get_status(self) -> list[dict[str, object]]:
        """Each hint, how many addresses it has, whether it leads to somebody, if not, why."""
        return [
            {
                "hint": str(hint),
                "addresses": len(hint.places),
                "is_answering": hint.is_answering,
                "failure": hint.failure,
            }
            for hint in self._hints
        ]

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.asker)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        loops = [self._follow(hint) for hint in self._hints]
        return [self.asker.wait_closed(), *(loops or [self._say_how()])]

    async def _say_how(self) -> None:
        await self._clock.sleep(SAY_ALONE_S)
        if not self._peers.alive(self._clock.monotonic()):
            logger.warning("no other node is known: training alone. To join others, %s", WAYS)

    async def _follow(self, hint: Hint) -> None:
        retry_s = RETRY_FIRST_S
        while not self._record.is_mute:
            if self._record.is_leaving:  # it is stopping, or may send nothing for now
                await self._clock.sleep(ALONE_S)
                continue
            try:
                await (self._ask(hint) if hint.way is Way.TRACKER else self._visit(hint))
            except (PeerError, AdmissionError) as error:
                self._note_failure(hint, error)
                longest_s = GREET_MAX_S if hint.greeted_port else RETRY_MAX_S
                wait_s, retry_s = retry_s, min(2 * retry_s, longest_s)
            else:
                self._note_success(hint)
                refresh_s = LOOK_UP_S if hint.greeted_port else REFRESH_S
                wait_s, retry_s = (ALONE_S if self._is_alone else refresh_s), RETRY_FIRST_S
            await self._clock.sleep(wait_s * self._random.uniform(1 - _JITTER, 1 + _JITTER))

    @property
    def _is_alone(self) -> bool:
        return not self._peers.alive(self._clock.monotonic())

    async def _visit(self, hint: Hint) -> None:
        """Greet a node, or all behind a name, and ask a few of them over HTTP.

        Raises:
            PeerError: nobody is there yet.
            AdmissionError: whoever answered has another token.
        """
        found = await self._lookup(hint.endpoint.host)
        places = [Endpoint(host, hint.greeted_port) for host in found]
        hint.places = tuple(place for place in places if not self._is_me(place))
        if not hint.places:
            raise PeerUnreachable("nobody there but this node")
        self._greeter.greet(hint.places, is_given=True)
        failure: PeerError | AdmissionError | None = None
        for place in self._random.sample(hint.places, min(MAX_ASKED, len(hint.places))):
            if self._has_met(hint):
                return
            try:
                await self._ask(hint, place.host)
                return
            except (PeerError, AdmissionError) as error:
                failure = error
        if isinstance(failure, PeerError):
            await self._clock.sleep(GREETING_S)  # the greeting may be on its way back
            if not self._has_met(hint):
                raise PeerUnreachable(
                    f"{failure}, and no answer to UDP (a node with another token gives none)"
                )
        elif failure is not None and not self._has_met(hint):
            raise failure

    async def _ask(self, hint: Hint, host: str | None = None) -> None:
        """Ask over HTTP: the hint's own host, or one of its addresses; raises like the asker."""
        endpoint = hint.endpoint if host is None else Endpoint(host, hint.endpoint.port)
        reply = await self.asker.ask(hint.url_at(endpoint))
        self._take(hint, endpoint, reply)

    def _take(self, hint: Hint, asked: Endpoint, reply: Reply) -> None:
        now = self._clock.monotonic()
        num_new = 0
        is_unheard = False
        for signed, heartbeat in reply.records:
            if signed.signer == self._peers.me:
                is_unheard |= self._record.hear(heartbeat) is Hearing.TELL_ALL
                continue
            is_unknown = self._peers.get(signed.signer) is None
            host_seen = asked.host if hint.names(heartbeat) else None
            is_taken = self._peers.observe(signed, heartbeat, now, host_seen=host_seen)
            num_new += is_unknown and is_taken
        if not hint.is_answering:
            logger.info("%s answers: %s", hint, counted(len(reply.records), "peer"))
        self.observed_host = reply.observed_host or self.observed_host
        if num_new or is_unheard:
            self._greeter.announce_now()

    def _has_met(self, hint: Hint) -> bool:
        """Whether a live peer is where the hint says."""
        hosts = {place.host for place in hint.places}
        ports = {hint.greeted_port, hint.endpoint.port}
        return any(
            peer.host in hosts and ports & {peer.heartbeat.heartbeat_port, peer.heartbeat.http_port}
            for peer in self._peers.alive(self._clock.monotonic())
        )

    def _is_me(self, place: Endpoint) -> bool:
        """Whether this node announces that place: one of a name's addresses may be its own."""
        me = self._record.describe()
        return place.host == me.host and place.port in (me.heartbeat_port, me.http_port)

    def _note_success(self, hint: Hint) -> None:
        hint.is_answering, hint.failure, hint.is_refusing = True, None, False
        self._first_answer.set()

    def _note_failure(self, hint: Hint, error: PeerError | AdmissionError) -> None:
        is_refusal = isinstance(error, AdmissionError)
        was_answering, before = hint.is_answering, hint.failure
        hint.is_answering, hint.failure, hint.is_refusing = False, str(error), is_refusal
        now = self._clock.monotonic()
        if is_refusal and before != hint.failure:
            logger.warning("%s: %s; give the token of its swarm", hint, error)
            self._quiet_until = now + _LINE_EVERY_S
        if not self._is_alone:
            if was_answering:
                logger.info("%s is gone: %s; the peers known are enough", hint, error)
        elif all(hint.failure is not None for hint in self._hints) and now >= self._quiet_until:
            self._quiet_until = now + _LINE_EVERY_S
            logger.warning("nobody found yet: %s; training alone, retrying", self._failures())

    def _failures(self) -> str:
        return "; ".join(f"{hint}: {hint.failure}" for hint in self._hints)
