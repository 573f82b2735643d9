"""Nodes without models call each other through every kind of router, and when cables are pulled."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from netns_lab import MASQUERADE, SYMMETRIC, Lab, Machine, wait_for

LIGHT_NODE = Path(__file__).with_name("light_node.py")
CALLS = 3
"""Answered calls to each peer that are waited for."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def start(machine: Machine, *hints: Machine) -> None:
    machine.folder.mkdir(parents=True)
    arguments = [str(machine.folder), machine.address, *(hint.address for hint in hints)]
    machine.run_python(sys.executable, str(LIGHT_NODE), *arguments)


def seen(machine: Machine) -> dict[str, Any]:
    path = machine.folder / "seen.json"
    return json.loads(path.read_text()) if path.exists() else {"id": "", "answers": {}}


def answers(machine: Machine, other: Machine) -> int:
    return int(seen(machine)["answers"].get(seen(other)["id"], 0))


def call_each_other(*machines: Machine) -> bool:
    """Whether each has called each of the others from now on."""
    pairs = [(one, other) for one in machines for other in machines if one is not other]
    before = {pair: answers(*pair) for pair in pairs}
    wait_for(lambda: all(answers(*pair) >= before[pair] + CALLS for pair in pairs), *machines)
    return True


def relays_of(machine: Machine) -> set[str]:
    return set(seen(machine).get("relays", ()))


@pytest.mark.parametrize(
    "nats", [(MASQUERADE, MASQUERADE), (SYMMETRIC, SYMMETRIC), (MASQUERADE, SYMMETRIC)],
    ids=["masquerade", "symmetric", "one of each"],
)  # fmt: skip
def test_nodes_behind_routers_call_each_other_through_a_public_one(net: Lab, nats: tuple[str, str]):
    carl = net.public("carl")
    anna, bert = net.router("anna", nats[0]), net.router("bert", nats[1])
    start(carl)
    start(anna, carl)
    start(bert, carl)
    assert call_each_other(anna, bert, carl)
    wait_for(lambda: seen(carl)["reachable"] is True, anna, bert, carl)
    for machine in (anna, bert):
        wait_for(lambda m=machine: seen(m)["reachable"] is False, anna, bert, carl)
        assert relays_of(machine) == {seen(carl)["id"]}
    assert seen(bert)["id"] in seen(anna)["relayed_peers"]
    assert seen(anna)["rtt"][seen(bert)["id"]] > 0
    assert seen(carl)["relayed"]["bytes"] > 0
    assert seen(carl)["relayed"]["cut"] == 0


def test_a_relay_whose_cable_is_pulled_is_replaced(net: Lab):
    carl, dora = net.public("carl"), net.public("dora")
    anna, bert = net.router("anna", SYMMETRIC), net.router("bert", MASQUERADE)
    start(carl)
    for machine in (anna, bert, dora):
        start(machine, carl)
    assert call_each_other(anna, bert, carl, dora)
    both = {seen(carl)["id"], seen(dora)["id"]}
    wait_for(lambda: relays_of(anna) == relays_of(bert) == both, anna, bert, carl, dora)
    net.pull_cable(carl)
    assert call_each_other(anna, bert, dora)
    wait_for(lambda: relays_of(anna) == relays_of(bert) == {seen(dora)["id"]}, anna, bert, dora)


def test_neighbours_behind_one_router_call_each_other_straight(net: Lab):
    carl = net.public("carl")
    anna = net.router("anna", MASQUERADE)
    bert = net.neighbour("bert", anna)
    start(carl)
    start(anna, carl)
    start(bert, carl)
    assert call_each_other(anna, bert, carl)
    for one, other in ((anna, bert), (bert, anna)):
        wait_for(lambda o=one, p=other: seen(p)["id"] not in seen(o)["relayed_peers"], one, other)
        wait_for(lambda o=one: relays_of(o) == {seen(carl)["id"]}, one, carl)
    assert call_each_other(anna, bert, carl)
