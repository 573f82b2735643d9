"""`neuroswarm tracker`: tell nodes of one another, without training."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.logs import configure_logging
from neuroswarm.cli.options import (
    AcceptTokenFileOption,
    LogFormatOption,
    LogLevelOption,
    MaxPerAddressOption,
    TokenFileOption,
    TokenOption,
)
from neuroswarm.cli.ports import (
    DEFAULT_TRACKER_PORT,
    PortProbe,
    moved,
    next_free,
    require_free,
)
from neuroswarm.cli.swarm_token import find_accepted, find_token, load_ring
from neuroswarm.values import Endpoint, unbracketed

if TYPE_CHECKING:
    from neuroswarm.identity.token_ring import TokenRing
    from neuroswarm.web.server import WebServer

logger = logging.getLogger(__name__)


def tracker(
    port: Annotated[
        int | None,
        typer.Option(
            help="HTTP port. Default: 7100, or the next free one.",
            envvar="NEUROSWARM_PORT",
            show_default=False,
            min=0,
            max=65535,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", envvar="NEUROSWARM_HOST")
    ] = "0.0.0.0",
    http_open: Annotated[
        bool,
        typer.Option(
            "--http-open",
            help="Answer status to other machines too.",
            envvar="NEUROSWARM_HTTP_OPEN",
        ),
    ] = False,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    accept_token_file: AcceptTokenFileOption = None,
    max_peers_per_address: MaxPerAddressOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "plain",
) -> None:
    """Tell nodes of one another, without training; every node does that too.

    Nodes that know each other need no tracker any more: it may stop.
    """
    from neuroswarm.cli.signals import run_service

    configure_logging(log_level, log_format)
    text = find_token(token, token_file, os.environ)
    tokens = load_ring(text, find_accepted(accept_token_file, os.environ))
    host = unbracketed(host)
    listen = Endpoint(host, choose_port(host, port))
    run_service(
        lambda: make_tracker(
            listen, tokens, is_open=http_open, max_per_address=max_peers_per_address
        ),
        _serve,
    )


def choose_port(host: str, asked: int | None) -> int:
    """The port asked for, or 7100 or the next free one; says so if it is not 7100.

    Raises:
        ConfigError: the port asked for is taken, or no other is free.
    """
    probe = PortProbe(host)
    if asked is not None:
        require_free("HTTP", "--port", "tcp", asked, probe.is_free)
        return asked
    port = next_free("HTTP", "tcp", DEFAULT_TRACKER_PORT, probe.is_free)
    if remark := moved("HTTP", DEFAULT_TRACKER_PORT, port, asked=False):
        logger.warning("%s", remark)
    return port


def make_tracker(
    listen: Endpoint, tokens: TokenRing, *, is_open: bool, max_per_address: int | None = None
) -> WebServer:
    """A web server that answers tracker requests and shows whom it knows; not started."""
    from prometheus_client import CollectorRegistry

    from neuroswarm.clock import SystemClock
    from neuroswarm.discovery.probe_desk import ProbeDesk
    from neuroswarm.discovery.search import REFRESH_S
    from neuroswarm.discovery.tracker_messages import TRACKER_PATH
    from neuroswarm.discovery.tracker_server import TrackerDirectory
    from neuroswarm.identity.node_key import NodeKey
    from neuroswarm.membership.address_quota import choose_quota
    from neuroswarm.membership.peer_table import PeerTable
    from neuroswarm.web.server import Pages, WebServer
    from neuroswarm.wire.probes import PROBE_PATH

    clock = SystemClock()
    quota = choose_quota(max_per_address, is_open=tokens.is_open)
    peers = PeerTable(NodeKey.generate().node_id, REFRESH_S, max_per_address=quota)
    directory = TrackerDirectory(peers, sealer=tokens.sealer, clock=clock)
    probes = ProbeDesk(peers, sealer=tokens.sealer, clock=clock)

    def describe_peers() -> list[dict[str, object]]:
        now = clock.monotonic()
        return [
            {
                "node_id": peer.node_id.hex(),
                "host": peer.host,
                "http_port": peer.heartbeat.http_port,
                "round": peer.heartbeat.round,
                "is_training": peer.heartbeat.is_training,
                "silent_s": now - peer.last_seen_s,
            }
            for peer in peers.alive(now)
        ]

    def describe() -> dict[str, object]:
        return {
            "role": "tracker",
            "token_fingerprint": tokens.primary.fingerprint,
            "token_fingerprints": tokens.fingerprints,
            "is_open": tokens.is_open,
            "max_peers_per_address": quota,
            "requests_answered": directory.num_answered,
            "requests_refused": directory.num_refused,
            "peers": describe_peers(),
        }

    pages = Pages(status=describe, peers=describe_peers, registry=CollectorRegistry())
    sealed = {TRACKER_PATH: directory.handle, PROBE_PATH: probes.handle}
    return WebServer(listen, pages, sealed=sealed, is_open=is_open)


async def _serve(server: WebServer) -> None:
    logger.info("tracker listens on %s", server.endpoint)
    await server.wait_closed()
