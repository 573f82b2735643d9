"""Asks one tracker (any node) once who is there.

Refuses to know when that is to be done, and what the answer is for.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp

from neuroswarm.clock import Clock
from neuroswarm.connecting import explain_failure
from neuroswarm.discovery.host_names import ConnectionResolver, Lookup
from neuroswarm.discovery.tracker_messages import Reply, open_reply, seal_request
from neuroswarm.errors import AdmissionError, BadSignature, MessageTooLarge, PeerUnreachable
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.service import Service
from neuroswarm.wire import limits
from neuroswarm.wire.sealed_calls import Sealing

TIMEOUT_S = 4.0
"""Longest time for one request."""


class TrackerAsker(Service):
    """Holds the connections to trackers."""

    name = "tracker asker"

    def __init__(self, *, sealer: Sealing, record: OwnRecord, lookup: Lookup, clock: Clock) -> None:
        """Wire it up.

        Args:
            sealer: Holds the swarm's datagram key.
            record: Makes this node's signed heartbeats.
            lookup: Finds the addresses of trackers' names.
            clock: Tells the time.
        """
        super().__init__()
        self._sealer = sealer
        self.record = record
        self._lookup = lookup
        self._clock = clock
        self.bytes_sent = 0
        self.bytes_received = 0
        """Bytes of bodies."""
        self.num_requests = 0
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, url: str) -> Reply:
        """Ask once.

        Raises:
            AdmissionError: the tracker's swarm has another token.
            PeerUnreachable: no connection, no answer in time, or no tracker there.
            ProtocolViolation: the answer is malformed.
        """
        request = seal_request(self._sealer, self.record.make(self._clock.wall()))
        body = await self._post(url, request)
        try:
            return await asyncio.to_thread(open_reply, self._sealer, request, body)
        except BadSignature as error:
            raise AdmissionError("its answer is not sealed with this node's swarm token") from error

    async def _open(self, stack: AsyncExitStack) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(resolver=ConnectionResolver(self._lookup))
        self._session = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=timeout, connector=connector)
        )

    async def _post(self, url: str, request: bytes) -> bytes:
        assert self._session is not None, "nobody asks before _open"
        self.num_requests += 1
        self.bytes_sent += len(request)
        try:
            async with self._session.post(url, data=request, allow_redirects=False) as answer:
                if answer.status == 403:
                    raise AdmissionError("it refuses this node's swarm token")
                if answer.status == 503:
                    raise PeerUnreachable("it is starting, or busy (HTTP 503)")
                if answer.status != 200:
                    raise PeerUnreachable(f"no tracker there (HTTP {answer.status})")
                body = await _read_bounded(answer.content, limits.MAX_TRACKER_BODY_BYTES)
                self.bytes_received += len(body)
                return body
        except TimeoutError as error:
            raise PeerUnreachable(f"no answer in {TIMEOUT_S:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PeerUnreachable(explain_failure(error)) from error


async def _read_bounded(content: aiohttp.StreamReader, limit: int) -> bytes:
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > limit:
            raise MessageTooLarge(f"answer too large: over {limit} bytes")
    return bytes(data)
