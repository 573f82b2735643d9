"""Makes a node's HTTP server: which pages, who answers what is sealed.

Knows nothing of what they say.
"""

from __future__ import annotations

from neuroswarm.clock import Clock
from neuroswarm.config.sections import NetworkConfig
from neuroswarm.errors import PeerUnreachable
from neuroswarm.identity.sealing import Sealer
from neuroswarm.metering.meter import Meter
from neuroswarm.node.assembly import Membership, RoundsRoom
from neuroswarm.node.replica import Replica
from neuroswarm.node.reporting import Reporter
from neuroswarm.node.rules_desk import RulesDesk
from neuroswarm.node.sealed_desks import make_sealed_handlers
from neuroswarm.values import Endpoint
from neuroswarm.web.metrics import make_registry
from neuroswarm.web.server import BindHttp, Pages, SealedHandler, WebServer


def make_web(
    network: NetworkConfig,
    membership: Membership,
    rounds: RoundsRoom,
    *,
    replica: Replica,
    reporter: Reporter,
    sealer: Sealer,
    meter: Meter,
    clock: Clock,
    bind: BindHttp,
) -> WebServer:
    """Wire it up; starts nothing."""
    desk = RulesDesk(rounds.intake, sealer=sealer, clock=clock)
    pages = Pages(
        reporter.status,
        reporter.peers,
        make_registry(reporter.metrics),
        lambda: replica.has_state,
    )
    sealed = make_sealed_handlers(membership, desk, sealer, clock)
    return WebServer(
        Endpoint(network.host, network.port),
        pages,
        sealed={path: _unless_silent(meter, handler) for path, handler in sealed.items()},
        is_open=network.http_open,
        bind=bind,
    )


def _unless_silent(meter: Meter, handler: SealedHandler) -> SealedHandler:
    def answer(body: bytes, asker: str) -> bytes:
        if meter.is_silent:
            raise PeerUnreachable("this node's data cap is used up: ask another")
        return handler(body, asker)

    return answer
