"""Asks trackers (any nodes) who is there, for as long as the node lives.

Refuses to know what the peers are for; they go into the peer table.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from neuroswarm.clock import Clock
from neuroswarm.discovery.hint import Hint
from neuroswarm.discovery.tracker_messages import Reply, open_reply, seal_request
from neuroswarm.errors import (
    AdmissionError,
    BadSignature,
    MessageTooLarge,
    PeerError,
    PeerUnreachable,
)
from neuroswarm.membership.own_record import Hearing, OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.service import Service
from neuroswarm.wire import limits
from neuroswarm.wire.sealed_calls import Sealing

logger = logging.getLogger(__name__)

REFRESH_S = 30.0
"""Seconds between two requests to a tracker that answers, once there are peers."""

ALONE_S = 3.0
"""The same while no peer is known."""

RETRY_FIRST_S = 0.5
RETRY_MAX_S = 15.0
"""Wait after the first failure; it doubles up to the longest."""

TIMEOUT_S = 4.0
"""Longest time for one request."""

_LINE_EVERY_S = 60.0
_JITTER = 0.25


class TrackerClient(Service):
    """One loop a hint: ask, feed the peer table, wait, ask again; failure only makes it wait."""

    name = "tracker client"

    def __init__(
        self,
        hints: Sequence[str],
        *,
        sealer: Sealing,
        record: OwnRecord,
        peers: PeerTable,
        clock: Clock,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Wire it up.

        Args:
            hints: Addresses of trackers: `http://host:port`, or `host:port`; may be empty.
            sealer: Holds the swarm's datagram key.
            record: Makes this node's signed heartbeats.
            peers: Where answers go.
            clock: Tells the time and waits.
            on_news: Called when an answer named a peer that was not known.

        Raises:
            ConfigError: a hint is no such address.
        """
        super().__init__()
        self._hints = tuple(dict.fromkeys(Hint.parse(text) for text in hints))
        self._sealer = sealer
        self._record = record
        self._peers = peers
        self._clock = clock
        self._on_news = on_news
        self._random = random.Random(record.node_id)
        self._quiet_until = -_LINE_EVERY_S
        self._session: aiohttp.ClientSession | None = None
        self._first_answer = asyncio.Event()
        self.observed_host: str | None = None
        """This node's address as a tracker saw it last."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each hint, for `announce.choose_announced_host`."""
        return tuple(hint.host for hint in self._hints)

    async def wait_first_round(self, timeout_s: float) -> bool:
        """Wait until some tracker has answered.

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
        """AdmissionError if every tracker refuses this node's token, so that it is a wrong one."""
        if self._hints and all(hint.is_refusing for hint in self._hints):
            refusals = "; ".join(f"{hint.url}: {hint.failure}" for hint in self._hints)
            raise AdmissionError(f"no way into the swarm: {refusals}; give the token of its swarm")

    def get_status(self) -> list[dict[str, object]]:
        """Each hint: its URL, whether it answers, and if not, why."""
        return [
            {"url": hint.url, "is_answering": hint.is_answering, "failure": hint.failure}
            for hint in self._hints
        ]

    async def _open(self, stack: AsyncExitStack) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._ask_forever(hint) for hint in self._hints]

    async def _ask_forever(self, hint: Hint) -> None:
        retry_s = RETRY_FIRST_S
        while not self._record.is_mute:
            try:
                reply = await self._ask(hint)
            except (PeerError, AdmissionError) as error:
                self._note_failure(hint, error)
                wait_s, retry_s = retry_s, min(2 * retry_s, RETRY_MAX_S)
            else:
                self._note_answer(hint, reply)
                is_alone = not self._peers.alive(self._clock.monotonic())
                wait_s, retry_s = (ALONE_S if is_alone else REFRESH_S), RETRY_FIRST_S
            await self._clock.sleep(wait_s * self._random.uniform(1 - _JITTER, 1 + _JITTER))

    async def _ask(self, hint: Hint) -> Reply:
        """Ask once.

        Raises:
            AdmissionError: the tracker's swarm has another token.
            PeerUnreachable: no connection, no answer in time, or no tracker there.
            ProtocolViolation: the answer is malformed.
        """
        request = seal_request(self._sealer, self._record.make(self._clock.wall()))
        body = await self._post(hint.url, request)
        try:
            return await asyncio.to_thread(open_reply, self._sealer, request, body)
        except BadSignature as error:
            raise AdmissionError("its answer is not sealed with this node's swarm token") from error

    async def _post(self, url: str, request: bytes) -> bytes:
        assert self._session is not None, "loops run after _open"
        try:
            async with self._session.post(url, data=request, allow_redirects=False) as answer:
                if answer.status == 403:
                    raise AdmissionError("it refuses this node's swarm token")
                if answer.status != 200:
                    raise PeerUnreachable(f"no tracker there (HTTP {answer.status})")
                return await _read_bounded(answer.content, limits.MAX_TRACKER_BODY_BYTES)
        except TimeoutError as error:
            raise PeerUnreachable(f"no answer in {TIMEOUT_S:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PeerUnreachable(_explain(error)) from error

    def _note_answer(self, hint: Hint, reply: Reply) -> None:
        now = self._clock.monotonic()
        num_new = 0
        is_unheard = False
        for signed, heartbeat in reply.records:
            if signed.signer == self._peers.me:
                is_unheard |= self._record.hear(heartbeat) is Hearing.TELL_ALL
                continue
            is_unknown = self._peers.get(signed.signer) is None
            host_seen = hint.host if hint.names(heartbeat) else None
            is_taken = self._peers.observe(signed, heartbeat, now, host_seen=host_seen)
            num_new += is_unknown and is_taken
        if not hint.is_answering:
            logger.info("tracker %s answers: %d peers", hint.url, len(reply.records))
        hint.is_answering, hint.failure, hint.is_refusing = True, None, False
        self.observed_host = reply.observed_host or self.observed_host
        self._first_answer.set()
        if num_new or is_unheard:
            self._on_news()

    def _note_failure(self, hint: Hint, error: PeerError | AdmissionError) -> None:
        is_refusal = isinstance(error, AdmissionError)
        is_said = is_refusal and hint.failure == str(error)
        hint.is_answering, hint.failure, hint.is_refusing = False, str(error), is_refusal
        now = self._clock.monotonic()
        if is_refusal and not is_said:
            logger.warning("tracker %s: %s; give the token of its swarm", hint.url, error)
            self._quiet_until = now + _LINE_EVERY_S
        if all(hint.failure is not None for hint in self._hints) and now >= self._quiet_until:
            self._quiet_until = now + _LINE_EVERY_S
            reasons = "; ".join(f"{hint.url}: {hint.failure}" for hint in self._hints)
            num_peers = len(self._peers.alive(now))
            alone = f"{num_peers} peers known" if num_peers else "training alone"
            logger.warning("no tracker reachable: %s; %s, retrying", reasons, alone)


async def _read_bounded(content: aiohttp.StreamReader, limit: int) -> bytes:
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > limit:
            raise MessageTooLarge(f"answer too large: over {limit} bytes")
    return bytes(data)


def _explain(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"unknown host {error.host}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
