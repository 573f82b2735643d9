"""One UDP socket whose answers leave from the address at which the other side was heard.

A machine with several addresses on one network would else answer from the first of them, and a NAT
or firewall on the other side drops what does not come from where it was sent to. Refuses to know
what is in a datagram.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Callable

from neuroswarm.listening import bind, mapped, unmapped
from neuroswarm.values import Endpoint

logger = logging.getLogger(__name__)

MAX_RECEIVED_BYTES = 2048
"""A longer datagram arrives cut off."""

MAX_WAITING = 256
"""Datagrams that wait while the kernel takes none; further ones are lost."""

MAX_HEARD = 4096
"""Endpoints of which it is known where they were heard; at the bound the oldest is dropped."""

RECEIVED_AT_ONCE = 64
"""Datagrams taken before the other tasks of the loop have their turn."""

_IP_PKTINFO = 8
_IPV6_RECVPKTINFO = 49
_IPV6_PKTINFO = 50
_ANCILLARY_BYTES = 256
_V4_INFO = struct.Struct("@I4s4s")
"""Linux `in_pktinfo`: interface, local address, address in the header."""
_V6_INFO = struct.Struct("@16sI")
"""Linux `in6_pktinfo`: local address, interface."""

_NOT_SENT = (OSError, TypeError, ValueError, OverflowError)
"""The kernel refuses, or the address is none: such a datagram is lost, and nothing else."""

Ancillary = tuple[int, int, bytes]


class UdpSocket:
    """Receives on the running loop until it is closed; sends at once, or as soon as possible."""

    def __init__(self, listen: Endpoint, receive: Callable[[bytes, Endpoint], None]) -> None:
        """Bind, and begin to receive.

        Args:
            listen: Address and port; `0.0.0.0` for all of IPv4, `::` for all.
            receive: Takes a datagram and its source; calls `keep_way_back` if it is authentic.

        Raises:
            OSError: the address cannot be bound.
        """
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._arrived: tuple[Endpoint, list[Ancillary]] | None = None
        self._heard_at: OrderedDict[Endpoint, Ancillary] = OrderedDict()
        self._waiting: deque[tuple[bytes, Endpoint]] = deque()
        self._socket = bind(socket.SOCK_DGRAM, listen)
        with contextlib.ExitStack() as undo:
            undo.callback(self._socket.close)
            self._ask_where_heard()
            self._loop.add_reader(self._socket, self._on_readable)
            undo.pop_all()

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._socket.getsockname()[1])

    @property
    def reaches(self) -> socket.AddressFamily:
        """The kind of addresses that it can send to: AF_INET, AF_INET6, or AF_UNSPEC for both."""
        if self._socket.family == socket.AF_INET:
            return socket.AF_INET
        is_v6_only = self._socket.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        return socket.AF_INET6 if is_v6_only else socket.AF_UNSPEC

    def keep_way_back(self) -> None:
        """Have answers to the sender of the datagram that is being taken leave from where it came.

        Only for authentic ones: others would fill the table.
        """
        if self._arrived is None:
            return
        source, ancillary = self._arrived
        for told in ancillary:
            way_back = _answer_from(*told)
            if way_back is not None:
                self._heard_at[source] = way_back
                self._heard_at.move_to_end(source)
        while len(self._heard_at) > MAX_HEARD:
            self._heard_at.popitem(last=False)

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send to a numeric address; what cannot be sent is lost."""
        if self._waiting:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append((data, to))
        elif not self._has_sent(data, to):
            self._waiting.append((data, to))
            self._loop.add_writer(self._socket, self._on_writable)

    def close(self) -> None:
        """Stop receiving; what waits is lost."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    def _ask_where_heard(self) -> None:
        """Have the kernel tell at which local address each datagram arrived, where it can."""
        with contextlib.suppress(OSError):
            if self._socket.family == socket.AF_INET:
                self._socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            else:
                self._socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)

    def _on_readable(self) -> None:
        for _ in range(RECEIVED_AT_ONCE):
            try:
                data, ancillary, _, address = self._socket.recvmsg(
                    MAX_RECEIVED_BYTES, _ANCILLARY_BYTES
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.debug("no datagram received: %s", error)
                return
            source = Endpoint(unmapped(str(address[0])), int(address[1]))
            self._arrived = source, ancillary
            try:
                self._receive(data, source)
            finally:
                self._arrived = None

    def _on_writable(self) -> None:
        while self._waiting and self._has_sent(*self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting:
            self._loop.remove_writer(self._socket)

    def _has_sent(self, data: bytes, to: Endpoint) -> bool:
        """Whether the datagram is gone, sent or not; False if the kernel takes none now."""
        host = to.host if self._socket.family == socket.AF_INET else mapped(to.host)
        way_back = self._heard_at.get(to)
        try:
            if way_back is not None and self._answers(data, (host, to.port), way_back):
                return True
            self._heard_at.pop(to, None)
            self._socket.sendto(data, (host, to.port))
        except (BlockingIOError, InterruptedError):
            return False
        except _NOT_SENT as error:
            logger.debug("datagram to %s not sent: %s", to, error)
        return True

    def _answers(self, data: bytes, address: tuple[str, int], way_back: Ancillary) -> bool:
        """Send from where the other side was heard; False if this machine is not there any more."""
        try:
            self._socket.sendmsg([data], [way_back], 0, address)
        except (BlockingIOError, InterruptedError):
            raise
        except _NOT_SENT:
            return False
        return True


def _answer_from(level: int, kind: int, data: bytes) -> Ancillary | None:
    """What makes an answer leave from where this was heard; None if it says nothing of that.

    The interface is left to the route.
    """
    if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(data) == _V4_INFO.size:
        _, _, heard_at = _V4_INFO.unpack(data)
        return level, kind, _V4_INFO.pack(0, heard_at, bytes(4))
    if (level, kind) == (socket.IPPROTO_IPV6, _IPV6_PKTINFO) and len(data) == _V6_INFO.size:
        heard_at, _ = _V6_INFO.unpack(data)
        return level, kind, _V6_INFO.pack(heard_at, 0)
    return None
