"""What a node was given to find others by, and how that goes.

Refuses to know how anybody is asked.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from neuroswarm.discovery.tracker_messages import TRACKER_PATH
from neuroswarm.errors import ConfigError
from neuroswarm.values import Endpoint
from neuroswarm.wire.hosts import is_address, is_numbers
from neuroswarm.wire.messages import Heartbeat

TRACKER_PORT = 7100
"""HTTP port of a bare tracker."""

NODE_PORT = 7101
"""HTTP port of a node, which is a tracker too."""

HEARTBEAT_PORT = 9999
"""UDP port of a node."""

WAYS = (
    "give --tracker http://HOST:7101 (any node or tracker), --peer HOST (any node), or "
    "--peer dns://NAME (all addresses of a name)"
)
"""How to name others, for people."""


class Way(enum.Enum):
    """How a hint leads to peers."""

    TRACKER = "tracker"
    """Asked over HTTP who is there."""
    PEER = "peer"
    """A node: greeted by datagram and asked over HTTP, at the one port that is known of it."""
    NAME = "dns"
    """The same for every address that the name has now."""


@dataclass(eq=True, unsafe_hash=True)
class Hint:
    """One way to others; equal to another hint that means the same."""

    way: Way
    endpoint: Endpoint
    """Host, and the port at which it is asked over HTTP."""
    greeted_port: int = 0
    """UDP port at which it is greeted; 0 for a tracker, which takes no heartbeats."""
    scheme: str = "http"
    places: tuple[Endpoint, ...] = field(default=(), compare=False)
    """Where it is greeted, by its newest addresses."""
    is_answering: bool = field(default=False, compare=False)
    failure: str | None = field(default=None, compare=False)
    """Why the last try failed; None if it did not, or there was none yet."""
    is_refusing: bool = field(default=False, compare=False)
    """Whether the last try failed because of this node's swarm token."""

    @classmethod
    def parse(cls, text: str) -> Hint:
        """Read a tracker's `http://host[:port]` or `host[:port]`, or `dns://name[:port]`.

        The port of a tracker is 7100 unless given.

        Raises:
            ConfigError: `text` is no such address.
        """
        complaint = f"no tracker address: {text!r} (write http://HOST:PORT)"
        parts, port = _split(text, complaint, ("http", "https", "dns"))
        if parts.scheme == "dns":
            return cls._of_node(Way.NAME, parts, port)
        return cls(Way.TRACKER, Endpoint(_host(parts), port or TRACKER_PORT), 0, parts.scheme)

    @classmethod
    def parse_peer(cls, text: str) -> Hint:
        """Read a node's `host[:port]`, or `dns://name[:port]`.

        The port may be its HTTP port or its heartbeat port. Without one it is greeted at 9999 and
        asked at 7101.

        Raises:
            ConfigError: `text` is no such address.
        """
        complaint = f"no peer address: {text!r} (write HOST:PORT, or dns://NAME:PORT)"
        if text.startswith(("http://", "https://")):
            raise ConfigError(f"{complaint}: give a URL with --tracker")
        parts, port = _split(text, complaint, ("http", "dns"))
        return cls._of_node(Way.NAME if parts.scheme == "dns" else Way.PEER, parts, port)

    @classmethod
    def _of_node(cls, way: Way, parts: SplitResult, port: int | None) -> Hint:
        return cls(way, Endpoint(_host(parts), port or NODE_PORT), port or HEARTBEAT_PORT)

    def __str__(self) -> str:
        if self.way is Way.TRACKER:
            return f"tracker {self.url_at(self.endpoint)}"
        named = Endpoint(self.endpoint.host, self.greeted_port)
        return f"dns://{named}" if self.way is Way.NAME else f"peer {named}"

    def url_at(self, endpoint: Endpoint) -> str:
        """Where requests are posted if this host and port is asked."""
        return f"{self.scheme}://{endpoint}{TRACKER_PATH}"

    def names(self, heartbeat: Heartbeat) -> bool:
        """Whether the node with this record is probably the asked one itself, by its port."""
        return heartbeat.http_port == self.endpoint.port


def read_hints(trackers: Iterable[str], peers: Iterable[str] = ()) -> tuple[Hint, ...]:
    """The hints of `--tracker` and `--peer`, each once.

    Raises:
        ConfigError: one is no such address.
    """
    found = [*map(Hint.parse, trackers), *map(Hint.parse_peer, peers)]
    return tuple(dict.fromkeys(found))


def _split(text: str, complaint: str, schemes: tuple[str, ...]) -> tuple[SplitResult, int | None]:
    """The parts of an address and its port; ConfigError if there is more or less to it."""
    if text.count(":") > 1 and is_address(text):
        text = f"[{text}]"
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host = _host(parts)
        host.encode("idna")
    except ValueError as error:
        raise ConfigError(f"{complaint}: its host is neither a name nor an address") from error
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{complaint}: a port is a number from 1 to 65535") from error
    if port == 0:
        raise ConfigError(f"{complaint}: a port is a number from 1 to 65535")
    if parts.scheme not in schemes or not host or set(host) & set(" %"):
        raise ConfigError(complaint)
    if is_numbers(host) and not is_address(host):
        raise ConfigError(f"{complaint}: an IPv4 address is four numbers from 0 to 255")
    if parts.path not in ("", "/", TRACKER_PATH) or parts.query or parts.username is not None:
        raise ConfigError(f"{complaint}: nothing may follow the port")
    return parts, port


def _host(parts: SplitResult) -> str:
    return parts.hostname or ""
