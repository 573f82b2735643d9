"""The file that says which peers a node knew: a few hundred bytes of JSON for each.

Refuses to do I/O. What is read from it is as good as any rumour: an endpoint to greet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from neuroswarm.errors import CheckpointError
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId
from neuroswarm.wire.hosts import is_host

PEERS_FILE = "peers.json"
"""In the state folder: the peers of last time."""

MAX_KEPT = 64
"""Peers in the file; the newest ones are kept."""

MAX_FILE_BYTES = 64 * 1024
"""What is read of a file at most; 64 peers with the longest names take half of it."""

_VERSION = 1


class Acquaintance(NamedTuple):
    """A peer of former days."""

    node_id: NodeId
    heartbeat_endpoint: Endpoint


def encode_acquaintances(known: Iterable[Acquaintance]) -> bytes:
    """The file that names the first 64 of these."""
    peers = [
        {
            "node_id": peer.node_id.hex(),
            "host": peer.heartbeat_endpoint.host,
            "heartbeat_port": peer.heartbeat_endpoint.port,
        }
        for peer in list(known)[:MAX_KEPT]
    ]
    return json.dumps({"version": _VERSION, "peers": peers}, indent=1).encode() + b"\n"


def decode_acquaintances(data: bytes) -> list[Acquaintance]:
    """What `encode_acquaintances` wrote.

    Raises:
        CheckpointError: it is damaged, too large, or of a later version.
    """
    if len(data) > MAX_FILE_BYTES:
        raise CheckpointError(f"{len(data)} bytes (limit {MAX_FILE_BYTES})")
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise CheckpointError(f"version {document['version']} (known is {_VERSION})")
        return [_read(entry) for entry in document["peers"][:MAX_KEPT]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"damaged: {type(error).__name__}") from error


def _read(entry: Mapping[str, Any]) -> Acquaintance:
    """One peer; ValueError, KeyError or TypeError if it is none."""
    node_id, host, port = bytes.fromhex(entry["node_id"]), entry["host"], entry["heartbeat_port"]
    if not isinstance(host, str) or not isinstance(port, int) or isinstance(port, bool):
        raise TypeError("host or port")
    if len(node_id) != NODE_ID_BYTES or not is_host(host) or not 0 < port < 65536:
        raise ValueError("node id, host or port")
    return Acquaintance(NodeId(node_id), Endpoint(host, port))
