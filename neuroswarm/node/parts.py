"""The parts of one node, by their names.

Makes none of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from neuroswarm.checkpoint.checkpointer import Checkpointer
from neuroswarm.metering.meter import Meter
from neuroswarm.node.assembly import Membership, RoundsRoom
from neuroswarm.node.carriers import Carriers
from neuroswarm.node.fitting import Fitting
from neuroswarm.node.home import Home
from neuroswarm.node.intake import Cohort
from neuroswarm.node.recorder import Recorder
from neuroswarm.node.replica import Replica
from neuroswarm.node.reporting import Reporter
from neuroswarm.node.shard_room import ShardRoom
from neuroswarm.service import Service
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.devices import Devices
from neuroswarm.training.trained_model import TrainedModel
from neuroswarm.values import Endpoint
from neuroswarm.web.server import WebServer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """A node's parts, once they are made."""

    home: Home
    compute: ComputeThread
    trainer: TrainedModel
    replica: Replica
    cohort: Cohort
    carriers: Carriers
    membership: Membership
    rounds: RoundsRoom
    fitting: Fitting
    recorder: Recorder
    reporter: Reporter
    web: WebServer
    checkpointer: Checkpointer
    meter: Meter
    shards: ShardRoom
    devices: Devices

    @property
    def in_rounds(self) -> tuple[Service, ...]:
        """Those that take part in rounds; none without memory for the model."""
        driver = self.rounds.driver
        return () if self.trainer.is_hollow else (self.recorder, self.checkpointer, driver)

    def log_address(self) -> None:
        """Say where the node is, and how others join."""
        hosts = self.membership.acquaintance.whereabouts.hosts
        here = Endpoint(hosts[0], self.web.endpoint.port)
        heartbeat_port = self.carriers.heartbeat_endpoint.port
        logger.info(
            "node %s at %s, gRPC %d, heartbeat %d; others join with --tracker http://%s "
            "or --peer %s",
            self.home.key.node_id,
            ", ".join(hosts),
            self.carriers.grpc_endpoint.port,
            heartbeat_port,
            here,
            Endpoint(hosts[0], heartbeat_port),
        )
