"""Nodes behind routers train with public ones, and with each other through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from netns_lab import MASQUERADE, SYMMETRIC, Lab, Machine, wait_for

ROUNDS = 3
"""Rounds with everybody's contribution that are waited for."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    return path


def have_trained(*machines: Machine, since: int = -1) -> bool:
    """Whether they hold some rounds after `since` to which each of them has contributed."""
    ids = {machine.status().get("node_id") for machine in machines}
    if None in ids:
        return False
    logs = [
        {e["round"]: e["digest"] for e in m.commits() if ids <= set(e["signers"])} for m in machines
    ]
    rounds = [r for r in set.intersection(*map(set, logs)) if r > since]
    assert all(len({log[r] for log in logs}) == 1 for r in rounds), "all hold the same bits"
    return len(rounds) >= ROUNDS


def newest_round(*machines: Machine) -> int:
    return max(machine.status()["round"] for machine in machines)


def peer_of(machine: Machine, other: Machine) -> dict[str, Any]:
    """What one says of the other."""
    node_id = other.status()["node_id"]
    return next((p for p in machine.status("peers") if p["node_id"] == node_id), {})


def is_reached_through(machine: Machine, *relays: Machine) -> bool:
    return machine.status().get("relays") == sorted(r.status()["node_id"] for r in relays)


def assert_relayed_to_each_other(anna: Machine, bert: Machine) -> None:
    for one, other in ((anna, bert), (bert, anna)):
        status, peer = one.status(), peer_of(one, other)
        assert status["reachable"] is False
        assert "router or firewall" in one.log
        assert peer["is_relayed"]
        assert peer["rtt_ms"] is not None
        assert peer["rtt_ms"] > 0


def test_two_behind_masquerade_train_with_a_public_one_and_another_takes_over(net: Lab, text: Path):
    carl, dora = net.public("carl"), net.public("dora")
    anna, bert = net.router("anna", MASQUERADE), net.router("bert", MASQUERADE)
    carl.start_node(text)
    anna.start_node(text, carl)
    bert.start_node(text, carl)
    wait_for(lambda: have_trained(anna, bert, carl), anna, bert, carl)
    wait_for(lambda: carl.status().get("reachable"), anna, bert, carl)
    wait_for(lambda: is_reached_through(anna, carl), anna, bert, carl)
    wait_for(lambda: is_reached_through(bert, carl), anna, bert, carl)
    assert carl.status()["relayed"]["bytes"] > 0
    assert_relayed_to_each_other(anna, bert)

    dora.start_node(text, carl)
    everybody = (anna, bert, carl, dora)
    wait_for(lambda: have_trained(*everybody), *everybody)
    wait_for(lambda: is_reached_through(anna, carl, dora), *everybody)
    wait_for(lambda: is_reached_through(bert, carl, dora), *everybody)
    since = newest_round(*everybody)
    carl.leave()
    staying = (anna, bert, dora)
    wait_for(lambda: have_trained(*staying, since=since), *staying)
    wait_for(lambda: is_reached_through(anna, dora), *staying)
    wait_for(lambda: is_reached_through(bert, dora), *staying)


def test_symmetric_nats_work_through_relays_and_a_relay_whose_cable_is_pulled_is_left(
    net: Lab, text: Path
):
    carl, dora = net.public("carl"), net.public("dora")
    anna, bert = net.router("anna", SYMMETRIC), net.router("bert", SYMMETRIC)
    everybody = (anna, bert, carl, dora)
    carl.start_node(text)
    for machine in (anna, bert, dora):
        machine.start_node(text, carl)
    wait_for(lambda: have_trained(*everybody), *everybody)
    assert_relayed_to_each_other(anna, bert)
    wait_for(lambda: is_reached_through(anna, carl, dora), *everybody)
    wait_for(lambda: is_reached_through(bert, carl, dora), *everybody)
    since = newest_round(*everybody)
    net.pull_cable(carl)
    staying = (anna, bert, dora)
    wait_for(lambda: have_trained(*staying, since=since), *everybody)
    wait_for(lambda: is_reached_through(anna, dora), *everybody)
    wait_for(lambda: is_reached_through(bert, dora), *everybody)


def test_without_a_public_node_both_say_what_they_need(net: Lab, text: Path):
    tracker = net.public("tracker")
    anna, bert = net.router("anna", MASQUERADE), net.router("bert", SYMMETRIC)
    tracker.start("tracker", "--host", "0.0.0.0", "--port", "7101")
    for machine in (anna, bert):
        machine.start_node(text, tracker)
    said = "no reachable peer; need one public node"
    wait_for(lambda: all(said in machine.log for machine in (anna, bert)), anna, bert, tracker)
    assert anna.status()["reachable"] is None
