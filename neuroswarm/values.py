"""Small values that every room speaks of: node ids, endpoints, short forms of hashes.

Refuses to know where they come from or what is done with them.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import NamedTuple

HASH_BYTES = 32
NODE_ID_BYTES = 20
PROTOCOL_VERSION = 2
"""What this program speaks; it talks with the version before it and the one after too."""
FORMER_PROTOCOL = PROTOCOL_VERSION - 1
"""The oldest version that it speaks."""


class NodeId(bytes):
    """First 20 bytes of the SHA-256 of a node's Ed25519 public key."""

    __slots__ = ()

    def __new__(cls, value: bytes) -> NodeId:
        """Take exactly 20 bytes; ValueError otherwise."""
        if len(value) != NODE_ID_BYTES:
            raise ValueError(f"node id: {len(value)} bytes (needs {NODE_ID_BYTES})")
        return super().__new__(cls, value)

    @classmethod
    def of_key(cls, public_key: bytes) -> NodeId:
        """The id of the node with this raw Ed25519 public key (32 bytes)."""
        return cls(hashlib.sha256(public_key).digest()[:NODE_ID_BYTES])

    def __str__(self) -> str:
        return self.hex()[:8]

    def __repr__(self) -> str:
        return f"NodeId({self.hex()})"


class Reach(enum.IntEnum):
    """Whether others can open connections to a node, numbered as `neuroswarm.v1.Reachability`."""

    UNKNOWN = 0
    """Nobody has tried yet."""
    OPEN = 1
    """Most peers that tried reach it."""
    CLOSED = 2
    """Most do not: a NAT or a firewall is in the way."""


class Endpoint(NamedTuple):
    """Where something listens: a host name or address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A peer by identity, with the endpoint where it answers calls."""

    node_id: NodeId
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.node_id}@{self.endpoint}"


def short(value: bytes) -> str:
    """The first 8 hex digits of a hash or id, for logs and people."""
    return bytes(value).hex()[:8]


def counted(count: int, noun: str) -> str:
    """A number of things for people: `1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def unbracketed(host: str) -> str:
    """The host out of `[v6]`, as URLs have it; any other text as it is."""
    is_bracketed = host.startswith("[") and host.endswith("]") and ":" in host
    return host[1:-1] if is_bracketed else host


def parse_endpoint(text: str, *, default_port: int | None = None) -> Endpoint:
    """Read `host:port`, `[v6]:port` or, with a default port, `host`; ValueError if bad."""
    host, separator, port = text.rpartition(":")
    if text.endswith("]") or not separator:
        host, port = text, ""
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ValueError(f"endpoint without a host: {text!r} (write host:port)")
    if not port:
        if default_port is None:
            raise ValueError(f"endpoint without a port: {text!r} (write host:port)")
        return Endpoint(host, default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"port out of range: {port!r} in {text!r} (1 to 65535)")
    return Endpoint(host, int(port))
