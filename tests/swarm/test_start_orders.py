"""Fifteen ways to start five nodes, each with one hint: always one swarm."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from start_scene import MAX_GAP_S, NODES, Given, Plan, StartedSwarm

START_ORDERS = 15
WITHIN_S = 30.0
"""For becoming one swarm, from the start of the last node on."""

AT_ONCE = 5
"""Swarms that are started side by side."""

PLANS = [Plan.draw(number) for number in range(START_ORDERS)]


def test_the_plans_are_the_promised_ones():
    assert sum(plan.loss > 0 for plan in PLANS) in (START_ORDERS // 2, START_ORDERS // 2 + 1)
    assert sum(plan.is_tracker_late for plan in PLANS) == START_ORDERS // 3
    assert all(set(plan.given) == set(Given) for plan in PLANS)
    assert all(sorted(plan.order) == list(range(NODES)) for plan in PLANS)
    assert all(0 <= gap_s <= MAX_GAP_S for plan in PLANS for gap_s in plan.gaps_s)
    assert len({plan.order for plan in PLANS}) > START_ORDERS / 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, START_ORDERS, AT_ONCE))
async def test_five_nodes_with_one_hint_each_become_one_swarm(first: int, tmp_path: Path):
    numbers = range(first, min(first + AT_ONCE, START_ORDERS))
    swarms = [StartedSwarm(number, PLANS[number], tmp_path) for number in numbers]
    try:
        async with asyncio.TaskGroup() as running:
            took = [running.create_task(connect(swarm)) for swarm in swarms]
    finally:
        await asyncio.gather(*(swarm.stop() for swarm in swarms))
    assert all(task.result() <= WITHIN_S for task in took)


async def connect(swarm: StartedSwarm) -> float:
    """Start a swarm and wait until it is one; the seconds since its last node was started."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(swarm.run_tracker())
        await swarm.launch_nodes(tasks)
        return await swarm.until_connected(WITHIN_S)
