"""Settings of the gRPC server and channels, and the names that they agree on.

Refuses to know what is called.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.wire import limits

METHOD_PREFIX = "/neuroswarm.v1."
NONCE_KEY = "neuroswarm-nonce-bin"
"""Metadata of a call: the caller's nonce."""
PROOF_KEY = "neuroswarm-proof-bin"
"""Metadata of an answer: the proof of who answers."""

Options = list[tuple[str, int | str]]


@dataclass(frozen=True, slots=True)
class CallBounds:
    """How much of others' calls and of its own channels a node bears at once."""

    max_calls: int = 256
    """Calls being answered; further ones are refused. Bounds memory at 4 MiB each. The last
    quarter is for callers of whom fewer than two are being answered."""
    max_calls_per_caller: int = 64
    """Calls of one caller being answered; further ones are refused."""
    max_streams_per_caller: int = 16
    """Of these, calls answered with a stream."""
    max_call_s: float = 600.0
    """Calls whose caller would wait for longer are refused."""
    max_handling_s: float = 30.0
    """Seconds for the one answer of a call; it is refused then."""
    max_write_s: float = 10.0
    """Seconds for a caller to take a message of a stream, more for one that is longer than so
    many seconds at `least_bytes_per_s`; the call ends then."""
    least_bytes_per_s: float = 16 * 1024
    max_calls_per_peer: int = 32
    """Own calls to one peer; further ones wait. Half of what peers bear, so that a call whose
    end has not been noted there yet does not count against the next one."""
    max_streams_per_peer: int = 8
    """Own streams from one peer; further ones wait."""
    max_channels: int = 256
    """Channels kept open; the one unused for longest closes for a new one."""


# A dead link is noticed after ping interval plus ping timeout: 28 s, where TCP takes 15 minutes.
# A server must bear pings more often than clients send them, or it answers "too many pings".
_PING_INTERVAL_MS = 20_000
_PING_TIMEOUT_MS = 8_000
_MIN_PING_INTERVAL_MS = 5_000
_IDLE_TIMEOUT_MS = 300_000
_HANDSHAKE_TIMEOUT_MS = 15_000
_MAX_CONNECTION_IDLE_MS = 2 * _IDLE_TIMEOUT_MS  # callers close theirs before, if they are honest

_BOTH: Options = [
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", _PING_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def server_options(bounds: CallBounds) -> Options:
    """Channel arguments of the server."""
    return [
        *_BOTH,
        ("grpc.so_reuseport", 0),  # a port in use is an error, not a share of its connections
        ("grpc.max_concurrent_streams", bounds.max_calls_per_caller),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_connection_idle_ms", _MAX_CONNECTION_IDLE_MS),
    ]


def channel_options(host_name: str, *, is_piped: bool = False) -> Options:
    """Channel arguments towards the node whose certificate carries `host_name`.

    A connection through a pipe takes some round trips to two nodes to be made.
    """
    return [
        *_BOTH,
        ("grpc.ssl_target_name_override", host_name),
        ("grpc.client_idle_timeout_ms", _IDLE_TIMEOUT_MS),
        ("grpc.enable_http_proxy", 0),  # peers are called directly, whatever the environment says
        ("grpc.use_local_subchannel_pool", 1),  # closing a channel closes its connection
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 15_000 if is_piped else 2_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
