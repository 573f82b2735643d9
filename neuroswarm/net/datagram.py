"""Sealed datagrams over UDP: what does not open under the swarm's key is dropped unread.

Refuses to know what datagrams say, and whether they arrive.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import math
import socket
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.errors import BadSignature, ConfigError, LifecycleError, PeerError
from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.net.echo import Echo
from neuroswarm.net.occasional import Occasional
from neuroswarm.net.traffic import Traffic
from neuroswarm.net.udp_socket import UdpSocket
from neuroswarm.service import Service, State
from neuroswarm.transport import DatagramHandler
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits
from neuroswarm.wire.hosts import is_address_of_one

logger = logging.getLogger(__name__)

CONTEXT = b"neuroswarm v1 datagram"
DHT_CONTEXT = b"neuroswarm v1 dht datagram"
_MAX_SEALED_BYTES = limits.MAX_DATAGRAM_BYTES + OVERHEAD_BYTES
_MAX_UNRESOLVED = 64
_MAX_NAMES = 1024
_RESOLVE_TIMEOUT_S = 5.0
_NAME_LIFETIME_S = 60.0
_UNKNOWN_LIFETIME_S = 10.0


class UdpTransport(Service):
    """`transport.Datagrams` over one UDP socket."""

    name = "datagrams"

    def __init__(
        self,
        sealer: Sealer,
        listen: Endpoint,
        *,
        clock: Clock | None = None,
        context: bytes = CONTEXT,
        may_move: bool = False,
    ) -> None:
        """Prepare to listen.

        Args:
            sealer: Seals and opens.
            listen: Where; port 0 takes a free one.
            clock: Tells the time.
            context: What is sealed in one (heartbeats or the DHT) does not open in another.
            may_move: Take any free port, and say so, where the wanted one is taken.
        """
        super().__init__()
        self.num_received = 0
        """Datagrams that arrived, dropped ones included."""
        self.num_dropped = 0
        """Datagrams that did not open, or that the handler refused."""
        self._sealer = sealer
        self._context = context
        self._may_move = may_move
        self._listen = listen
        self._clock = clock or SystemClock()
        self._traffic = Traffic()
        self._strangers = Occasional(self._clock)
        self._echo = Echo(sealer, self._clock)
        self._handler: DatagramHandler | None = None
        self._socket: UdpSocket | None = None
        self._endpoint: Endpoint | None = None
        self._bug: asyncio.Future[None] | None = None
        self._names: dict[str, tuple[str, float]] = {}
        self._unresolved: asyncio.Queue[tuple[Endpoint, bytes]] = asyncio.Queue(_MAX_UNRESOLVED)

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens, with the port that was bound; after `start`."""
        if self._endpoint is None:
            raise LifecycleError("datagrams: has no endpoint before start")
        return self._endpoint

    @property
    def bytes_sent(self) -> int:
        """Bytes of sealed datagrams sent so far."""
        return self._traffic.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of datagrams received so far, dropped ones included."""
        return self._traffic.bytes_received

    def on_datagram(self, handler: DatagramHandler) -> None:
        """Set who takes opened datagrams; before `start`."""
        if self.state is not State.NEW:
            raise LifecycleError("datagrams: the handler is set before start")
        self._handler = handler

    def send(self, to: Endpoint, data: bytes) -> None:
        """Seal and send at most `limits.MAX_DATAGRAM_BYTES` bytes; loss is silent.

        A host name is looked up in the background, for a minute, or for 10 s if there is no such
        host; while 64 datagrams wait for names, further ones to names not known yet are lost.
        Nothing goes to an address that is not one machine's: peers say where to send, and a
        multicast or broadcast address would have a whole network disturbed.

        Raises:
            ValueError: the datagram is too large.
        """
        if self.state is State.NEW:
            raise LifecycleError("datagrams: start it before sending")
        if len(data) > limits.MAX_DATAGRAM_BYTES:
            raise ValueError(
                f"datagram too large: {len(data)} bytes (limit {limits.MAX_DATAGRAM_BYTES})"
            )
        if self.state is not State.RUNNING:
            return
        sealed = self._sealer.seal(data, self._context)
        address = self._find_address(to.host)
        if address:
            self._send_sealed(Endpoint(address, to.port), sealed)
        elif address is None and not self._unresolved.full():
            self._unresolved.put_nowait((to, sealed))

    async def _open(self, stack: AsyncExitStack) -> None:
        self._bug = asyncio.get_running_loop().create_future()
        try:
            self._socket = self._bind()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on udp {self._listen}: {error.strerror} (choose another)"
            ) from error
        stack.callback(self._socket.close)
        self._endpoint = Endpoint(self._listen.host, self._socket.port)

        if self._listen.port not in (0, self._endpoint.port):
            logger.info("UDP port %d is in use, taking %d", self._listen.port, self._endpoint.port)

    def _bind(self) -> UdpSocket:
        try:
            return UdpSocket(self._listen, self._receive)
        except OSError as error:
            if not self._may_move or error.errno != errno.EADDRINUSE:
                raise
            return UdpSocket(Endpoint(self._listen.host, 0), self._receive)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._resolve_names(), self._raise_bug())

    def _receive(self, data: bytes, source: Endpoint) -> None:
        """Open one datagram and hand it on; drop it if it is not of this swarm."""
        self.num_received += 1
        self._traffic.bytes_received += len(data)
        try:
            if len(data) > _MAX_SEALED_BYTES:
                raise BadSignature(f"datagram too large: {len(data)} bytes")
            opened = self._sealer.open(data, self._context)
        except BadSignature:
            if self._answer_probe(data, source):
                return
            self.num_dropped += 1
            if num_strangers := self._strangers.count():
                logger.warning(
                    "datagrams with another swarm token dropped: %d, the last from %s",
                    num_strangers,
                    source.host,
                )
            return
        if self._socket is not None:
            self._socket.keep_way_back()
        try:
            if self._handler is not None:
                self._handler(opened, source)
        except PeerError as error:
            self.num_dropped += 1
            logger.debug("datagram from %s dropped: %s", source, error)
        except Exception as error:
            self._report_bug(error)
            raise

    def _answer_probe(self, data: bytes, source: Endpoint) -> bool:
        """Answer what may be a probe; False if it is none."""
        if len(data) > _MAX_SEALED_BYTES:
            return False
        try:
            answer = self._echo.answer(data, source)
        except BadSignature:
            return False
        except PeerError as error:
            self.num_dropped += 1
            logger.debug("probe from %s dropped: %s", source, error)
            return True
        if answer is not None:
            self._send_sealed(source, answer)
        return True

    def _send_sealed(self, to: Endpoint, sealed: bytes) -> None:
        assert self._socket is not None, "_open() made it"
        self._traffic.bytes_sent += len(sealed)
        self._socket.send(to, sealed)

    def _find_address(self, host: str) -> str | None:
        """The numeric address of a host: itself, or a name looked up lately; "" if it has none.

        None if it is to be looked up.
        """
        try:
            ipaddress.ip_address(host)
        except ValueError:
            address, until = self._names.get(host, ("", -math.inf))
            return address if self._clock.monotonic() < until else None
        return host if is_address_of_one(host) else ""

    async def _resolve_names(self) -> None:
        """Look up names one by one and send what waited for them."""
        while True:
            to, sealed = await self._unresolved.get()
            address = self._find_address(to.host)
            if address is None:
                address = await self._look_up(to.host)
                self._remember(to.host, address)
            if address:
                self._send_sealed(Endpoint(address, to.port), sealed)

    def _remember(self, host: str, address: str) -> None:
        lifetime_s = _NAME_LIFETIME_S if address else _UNKNOWN_LIFETIME_S
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        self._names[host] = (address, self._clock.monotonic() + lifetime_s)

    async def _look_up(self, host: str) -> str:
        assert self._socket is not None, "_open() made it"
        family = self._socket.reaches
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
                found = await asyncio.get_running_loop().getaddrinfo(
                    host, None, family=family, type=socket.SOCK_DGRAM
                )
        except (OSError, UnicodeError, TimeoutError) as error:
            logger.debug("cannot look up %s: %s", host, error)
            return ""
        address = str(found[0][4][0])
        return address if is_address_of_one(address) else ""

    async def _raise_bug(self) -> None:
        assert self._bug is not None, "_open() made it"
        await self._bug

    def _report_bug(self, error: Exception) -> None:
        if self._bug is not None and not self._bug.done():
            self._bug.set_exception(error)
