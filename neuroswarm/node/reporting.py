"""What a node says of itself: heartbeat record, status, peers, metrics, event measurements.

Only reads; changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from neuroswarm.diloco.schedule import get_inner_steps
from neuroswarm.hardware.capacity import MIB, choose_budget
from neuroswarm.hardware.memory import read_memory
from neuroswarm.metering.allowance import Allowance
from neuroswarm.node.admission import describe_admission
from neuroswarm.node.global_status import describe_training
from neuroswarm.node.resting import why_not_training
from neuroswarm.node.statistics import Statistics
from neuroswarm.values import Endpoint
from neuroswarm.web.metrics import Measured, measure_mapping
from neuroswarm.wire import limits
from neuroswarm.wire.heartbeats import Heartbeat

if TYPE_CHECKING:
    from neuroswarm.node.core import NodeCore
    from neuroswarm.node.parts import Parts

STATUS_VERSION = 1
_SHOWN = ("bytes", "util", "live", "step_s")
"""How the measurements begin that `/status` shows too."""


class Reporter:
    """Reads a node's parts."""

    def __init__(self, node: NodeCore, statistics: Statistics) -> None:
        self._node = node
        self.statistics = statistics
        self.tokens_before = 0
        """Tokens trained on in former lives of the node."""
        self._free_mb = 0

    @property
    def _parts(self) -> Parts:
        parts = self._node.parts
        assert parts is not None, "nobody asks before the parts are made"
        return parts

    def describe(self) -> Heartbeat:
        """The node as it is now (REQUIREMENTS N6); sequence and time are filled in later."""
        parts = self._parts
        replica = parts.replica
        has_state = replica.has_state
        host, *other_hosts = self._reached_hosts()
        evaluated, loss = parts.rounds.crowd.held_out.own or (b"", 0.0)
        return Heartbeat(
            swarm_id=parts.cohort.swarm_id,
            sequence=0,
            time=0.0,
            host=host,
            other_hosts=tuple(other_hosts),
            grpc_port=parts.carriers.grpc_endpoint.port,
            heartbeat_port=parts.carriers.heartbeat_endpoint.port,
            http_port=parts.web.endpoint.port,
            dht_port=self.dht_endpoint().port,
            protocol=self._node.config.network.protocol_version,
            is_training=self._node.is_voter,
            available_memory_mb=self._available_memory_mb(),
            first_fragment=0,
            num_fragments=len(parts.cohort.shape),
            uses_accelerator=parts.trainer.device.type != "cpu",
            round=replica.state.round if has_state else 0,
            digest=replica.state.digest if has_state else b"",
            tokens_per_s=self._tokens_per_s(),
            inner_steps=replica.inner_steps,
            evaluated=evaluated,
            held_out_loss=loss,
            reach=parts.membership.reach.reach,
            relays=parts.membership.relaying.lines.relays,
            device_class=parts.fitting.device_class,
            start_step_s=parts.fitting.start_step_s,
            # What is not to be given away is as good as in use.
            network_saturation=0.0 if parts.meter.allowance is Allowance.OPEN else 1.0,
        )

    def dht_endpoint(self) -> Endpoint:
        """Where others reach this node's DHT; port 0 if it takes no part in it."""
        is_on = self._node.config.dht.enabled
        port = self._parts.carriers.dht_endpoint.port if is_on else 0
        return Endpoint(self._reached_hosts()[0], port)

    def measure(self) -> Mapping[str, object]:
        """What goes into every event of the log."""
        parts = self._parts
        trainer, carriers = parts.trainer, parts.carriers
        ends = (carriers.rpc, carriers.datagrams, carriers.dht_datagrams)
        return {
            "train_loss": trainer.last_loss,
            "total_inner_steps": trainer.total.steps,
            "total_tokens": trainer.total.tokens,
            "num_params": sum(num_params for _, num_params in parts.cohort.shape),
            "bytes_sent": sum(end.bytes_sent for end in ends),
            "bytes_received": sum(end.bytes_received for end in ends),
            "utilisation": parts.compute.utilisation,
            "live_peers": len(parts.rounds.crowd.live()),
            "step_s": parts.compute.step_s,
        }

    def meta(self) -> Mapping[str, object]:
        """What lies beside an outer state on disk: the lineage stood on, proofs, as JSON."""
        intake = self._parts.rounds.intake
        assert intake.history is not None, "there is a history once there is a state"
        return {
            "history": intake.history.to_json(),
            "is_alone": self._parts.replica.solo.hold_at is not None,
            "proofs": intake.convictions.to_json(),
            "node_id": self._parts.home.key.node_id.hex(),
            "base": self._parts.cohort.base.hex(),
        }

    def own_meta(self) -> Mapping[str, object]:
        """The part of it that changes within a round: what lies beside this node's own work."""
        return {
            "proofs": self._parts.rounds.intake.convictions.to_json(),
            "node_id": self._parts.home.key.node_id.hex(),
        }

    def status(self) -> Mapping[str, object]:
        """`/status`: everything a person or a dashboard wants to know, as JSON values."""
        parts = self._parts
        replica, driver = parts.replica, parts.rounds.driver
        state = replica.state if replica.has_state else None
        return {
            "version": STATUS_VERSION,
            "node_id": parts.home.key.node_id.hex(),
            "swarm": self._node.config.network.name,
            "swarm_id": parts.cohort.swarm_id.hex(),
            "protocol": parts.rounds.crowd.describe_versions(),
            "base": parts.cohort.base.hex() or None,
            "state": self._node.state.name.lower(),
            "is_training": self._node.is_training,
            "trains_not_because": why_not_training(self._node),
            "round": None if state is None else state.round,
            "digest": None if state is None else state.digest.hex(),
            "joining": None if state else parts.rounds.downloader.progress(),
            "downloading": parts.rounds.downloader.progress(),
            "state_downloaders": parts.rounds.donor.num_downloaders,
            "phase": None if driver.phase is None else driver.phase.value,
            "times_suspended": self._node.vigil.num_gaps,
            "clock_offset_s": self._node.vigil.clock_offset_s,
            "voters": sorted(str(voter) for voter in driver.electorate.live),
            "inner_steps": replica.inner_steps,
            "total_inner_steps": parts.trainer.total.steps,
            "total_tokens_processed": parts.trainer.total.tokens,
            "current_loss": parts.trainer.last_loss,
            "tokens_per_s": self._tokens_per_s(),
            **self.statistics.as_dict(),
            "swarm_held_out": self._swarm_held_out(),
            "global_training": self.global_training(),
            **{k: v for k, v in self.measure().items() if k.startswith(_SHOWN)},
            "hardware": parts.fitting.get_status(),
            "traffic": parts.rounds.thrift.get_status(),
            "checkpoints": parts.checkpointer.get_status(),
            "shards": parts.shards.get_status(),
            "disk_written_bytes_total": parts.home.bytes_written + parts.shards.bytes_written,
            "hosts": list(self._reached_hosts()),
            "one_way_links": [str(peer) for peer in parts.membership.heartbeat.one_way_links],
            **parts.membership.acquaintance.get_status(),
            **parts.membership.reach.get_status(),
            **parts.membership.relaying.get_status(),
            "dht": parts.membership.finder.get_status(),
            "statements": dict(parts.rounds.intake.counters),
            "gossip": dict(parts.rounds.gossip.counters),
            **describe_admission(
                parts.membership.peers,
                parts.membership.door,
                self._node.tokens,
                self._node.now(),
            ),
            "datagrams_received": parts.carriers.datagrams.num_received,
            "datagrams_unopened": parts.carriers.datagrams.num_dropped,
            "heartbeats_dropped": dict(parts.membership.heartbeat.dropped),
            "tracker_requests_answered": parts.membership.directory.num_answered,
            "tracker_requests_refused": parts.membership.directory.num_refused,
            "rules": None if state is None else state.rules.model_dump(mode="json"),
        }

    def global_training(self) -> Mapping[str, object]:
        """How the training of the whole swarm goes."""
        return describe_training(self._parts)

    def _swarm_held_out(self) -> Mapping[str, float] | None:
        found = self._parts.rounds.crowd.held_out.newest()
        return None if found is None else found.as_dict()

    def progress(self) -> Mapping[str, object]:
        """How far the inner steps of the round in progress are."""
        parts = self._parts
        replica = parts.replica
        if not replica.has_state:
            return {"round": None, "inner_steps": 0, "inner_steps_wanted": None, "progress": 0.0}
        num_peers = max(1, len(parts.rounds.driver.electorate.live))
        wanted = get_inner_steps(replica.state.rules, num_peers)
        return {
            "round": replica.state.round,
            "inner_steps": replica.inner_steps,
            "inner_steps_wanted": wanted,
            "progress": min(1.0, replica.inner_steps / wanted),
        }

    def peers(self) -> list[Mapping[str, object]]:
        """`/peers`: every known peer, by node id."""
        parts = self._parts
        now = self._node.now()
        table = parts.membership.peers
        return [
            {
                "node_id": peer.node_id.hex(),
                "address": str(peer.address.endpoint),
                "is_alive": table.is_alive(peer.node_id, now),
                "is_training": peer.heartbeat.is_training,
                "same_swarm": peer.heartbeat.swarm_id == parts.cohort.swarm_id,
                "protocol": peer.heartbeat.protocol,
                "round": peer.heartbeat.round,
                "digest": peer.heartbeat.digest.hex()[:8],
                "last_seen_s": round(now - peer.last_seen_s, 1),
                "is_relayed": peer.needs_relay,
                "relays": list(map(str, peer.heartbeat.relays)),
                "rtt_ms": None if peer.rtt_s is None else round(1000 * peer.rtt_s, 1),
                "tokens_per_s": peer.heartbeat.tokens_per_s,
                "available_memory_mb": peer.heartbeat.available_memory_mb,
                "device_class": peer.heartbeat.device_class and peer.heartbeat.device_class.value,
            }
            for peer in table.all(now)
        ]

    def metrics(self) -> Iterable[Measured]:
        """`/metrics`: the numbers of `/status`."""
        return measure_mapping("neuroswarm", dict(self.status()))

    def _reached_hosts(self) -> tuple[str, ...]:
        """The announced hosts; first of all where peers reach this node if they do only there."""
        hosts = self._parts.membership.acquaintance.whereabouts.hosts
        better = self._parts.membership.reach.verdicts.better_host(hosts[0])
        if self._node.config.network.announce_host or better is None:
            return hosts
        return tuple(dict.fromkeys((better, *hosts)))[: limits.MAX_HOSTS]

    def _tokens_per_s(self) -> float:
        compute, trainer = self._parts.compute, self._parts.trainer
        tokens = trainer.total.tokens - self.tokens_before
        return 0.0 if compute.step_s <= 0 else tokens / compute.step_s

    def _available_memory_mb(self) -> int:
        limit = self._node.config.resources.available_memory_mb
        with contextlib.suppress(OSError):  # out of file descriptors: the former number will do
            budget = choose_budget(read_memory(), limit)
            self._free_mb = self._free_mb if budget is None else budget // MIB
        return self._free_mb
