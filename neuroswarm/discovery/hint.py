"""What a node was given to find others by, and how that goes.

Refuses to know how anybody is asked.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from neuroswarm.discovery.address_text import WrittenAddress, read_address
from neuroswarm.discovery.tracker_messages import TRACKER_PATH
from neuroswarm.errors import ConfigError
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat

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
        schemes = ("http", "https", "dns")
        written = read_address(text, complaint, schemes=schemes, page=TRACKER_PATH)
        if written.scheme == "dns":
            return cls._of_node(Way.NAME, written)
        endpoint = Endpoint(written.host, written.port or TRACKER_PORT)
        return cls(Way.TRACKER, endpoint, 0, written.scheme)

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
        written = read_address(text, complaint, schemes=("http", "dns"), page=TRACKER_PATH)
        return cls._of_node(Way.NAME if written.scheme == "dns" else Way.PEER, written)

    @classmethod
    def _of_node(cls, way: Way, written: WrittenAddress) -> Hint:
        endpoint = Endpoint(written.host, written.port or NODE_PORT)
        return cls(way, endpoint, written.port or HEARTBEAT_PORT)

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
