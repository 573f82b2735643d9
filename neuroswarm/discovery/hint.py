"""One address of a tracker that the node was given, and how asking it goes.

Refuses to know how it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from neuroswarm.discovery.tracker_messages import TRACKER_PATH
from neuroswarm.errors import ConfigError
from neuroswarm.values import Endpoint
from neuroswarm.wire.messages import Heartbeat

DEFAULT_PORT = 7100
"""Port of a bare tracker."""


@dataclass(eq=True, unsafe_hash=True)
class Hint:
    """A tracker by address; equal to another hint with the same address."""

    endpoint: Endpoint
    scheme: str = "http"
    is_answering: bool = field(default=False, compare=False)
    failure: str | None = field(default=None, compare=False)
    """Why the last request failed; None if it did not, or there was none yet."""
    is_refusing: bool = field(default=False, compare=False)
    """Whether the last request failed because of this node's swarm token."""

    @classmethod
    def parse(cls, text: str) -> Hint:
        """Read `http://host[:port]` or `host[:port]`; the port is 7100 unless given.

        Raises:
            ConfigError: `text` is no such address.
        """
        complaint = f"no tracker address: {text!r} (write http://HOST:PORT)"
        url = text if "://" in text else f"http://{text}"
        try:
            parts = urlsplit(url)
            port = parts.port if parts.port is not None else DEFAULT_PORT
            host = parts.hostname or ""
            host.encode("idna")
        except ValueError as error:
            raise ConfigError(f"{complaint}: {error}") from error
        if parts.scheme not in ("http", "https") or not host or set(host) & set(" %") or not port:
            raise ConfigError(complaint)
        if parts.path not in ("", "/", TRACKER_PATH) or parts.query or parts.username is not None:
            raise ConfigError(f"{complaint}: nothing may follow the port")
        return cls(Endpoint(host, port), parts.scheme)

    @property
    def host(self) -> str:
        """Host name or address."""
        return self.endpoint.host

    @property
    def url(self) -> str:
        """Where requests are posted."""
        return f"{self.scheme}://{self.endpoint}{TRACKER_PATH}"

    def names(self, heartbeat: Heartbeat) -> bool:
        """Whether the node with this record is probably the tracker itself, by its port."""
        return heartbeat.http_port == self.endpoint.port
