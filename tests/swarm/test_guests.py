"""Nodes on machines of others: they rest, stay members, and take up their work again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.node.factory import create_swarm_node
from neuroswarm.testing.swarm import Swarm

pytestmark = pytest.mark.slow
GUEST = {"only_on_mains": True, "settle_s": 0.0}


async def test_a_guest_rests_on_battery_stays_a_member_and_comes_back(tmp_path: Path):
    async with Swarm(tmp_path, step_s=0.01, guest=GUEST) as swarm:
        host, guest = await swarm.found("host", "guest")
        await swarm.until(lambda: guest.statistics.contributions_agreed > 0, what="both at work")
        fitting = guest.parts.fitting
        fitting.machine = replace(fitting.machine, read_on_mains=lambda: False)
        await swarm.until(lambda: fitting.reason == "on battery", what="the guest's rest")
        await swarm.until(
            lambda: guest.node_id not in host.parts.rounds.driver.electorate.live,
            what="nobody to wait for the guest",
        )
        steps, agreed = guest.parts.trainer.total.steps, guest.statistics.contributions_agreed
        await swarm.more_rounds(3)  # of both: the guest follows
        assert guest.node_id in {peer.node_id for peer in host.parts.rounds.crowd.live()}
        status = guest.parts.reporter.status()
        assert status["hardware"]["rests_because"] == "on battery"  # type: ignore[index]
        assert status["trains_not_because"] == "on battery"
        assert list(status).index("trains_not_because") < 10, "among the first lines"
        assert host.parts.reporter.status()["trains_not_because"] is None
        assert guest.parts.trainer.total.steps <= steps + 1
        assert guest.statistics.contributions_agreed <= agreed + 1
        fitting.machine = replace(fitting.machine, read_on_mains=lambda: True)
        await swarm.until(
            lambda: guest.statistics.contributions_agreed > agreed + 1, what="work again"
        )
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def test_a_machine_without_memory_for_the_model_helps_all_the_same(tmp_path: Path):
    """A 1B model on a Raspberry Pi: no crash, no training, but a member of the swarm."""
    network = {"host": "127.0.0.1", "lan": False, "grpc_port": 0}
    common = {
        "heartbeat": {"port": 0, "interval_s": 0.3},
        "rounds": {"genesis_wait_s": 0.0},
        "run": {"minutes": 0.05},
        "training": {"model": "rwkv7", "dim": 2048, "num_layers": 24},
    }
    config = SwarmNodeConfig(network=network, state_dir=tmp_path, **common)
    node = create_swarm_node(
        None, 0, None, config, available_memory_mb=3000, enable_training=True,
    )  # fmt: skip
    async with node:
        assert await node.run() == "0.05 minutes"
        status = node.get_stats()
        assert status["state"] == "running"
        assert not status["is_training"]
        assert "does not fit into memory" in status["hardware"]["trains_not_because"]  # type: ignore[index]
        parts = node.core.require_parts()
        heartbeat = parts.reporter.describe()
        assert not heartbeat.is_training
        assert heartbeat.num_fragments == 24 + 3
        assert parts.trainer.is_hollow
        assert list(parts.reporter.metrics())


def test_a_step_by_hand_is_not_taken_while_others_need_the_machine(tmp_path: Path):
    config = SwarmNodeConfig(
        network={"host": "127.0.0.1", "lan": False, "grpc_port": 0},
        state_dir=tmp_path,
        heartbeat={"port": 0},
        rounds={"genesis_wait_s": 0.0},
        training={"dim": 16, "num_layers": 1, "num_heads": 2, "context": 16, "batch_size": 2},
    )
    node = create_swarm_node(None, 0, None, config, enable_training=True)
    node.start()
    try:
        assert node.train_step() is not None
        duty = node.core.require_parts().fitting.duty
        duty.rest()
        before = node.total_training_steps
        assert node.train_step() is None
        assert node.total_training_steps == before
        duty.work()
        assert node.train_step() is not None
    finally:
        node.stop()
