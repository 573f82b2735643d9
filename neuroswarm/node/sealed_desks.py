"""Who answers the sealed requests that come to a node over HTTP.

Refuses to know what is asked and answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from neuroswarm.clock import Clock
from neuroswarm.discovery.probe_desk import ProbeDesk
from neuroswarm.discovery.tracker_messages import TRACKER_PATH
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.rules_desk import RulesDesk
from neuroswarm.web.server import SealedHandler
from neuroswarm.wire.control import RULES_PATH
from neuroswarm.wire.probes import PROBE_PATH
from neuroswarm.wire.sealed_calls import Sealing


class Members(Protocol):
    """What is needed of those who know the peers."""

    @property
    def peers(self) -> PeerTable:
        """Who is known."""
        ...

    @property
    def record(self) -> OwnRecord:
        """Makes this node's heartbeats."""
        ...

    @property
    def directory(self) -> TrackerDirectory:
        """Answers trackers' requests."""
        ...


def make_sealed_handlers(
    members: Members, desk: RulesDesk, sealer: Sealing, clock: Clock
) -> Mapping[str, SealedHandler]:
    """By path, who answers what is posted there."""
    probes = ProbeDesk(members.peers, sealer=sealer, clock=clock, describe=members.record.describe)
    return {
        TRACKER_PATH: members.directory.handle,
        RULES_PATH: desk.handle,
        PROBE_PATH: probes.handle,
    }
