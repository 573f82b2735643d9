"""What the event loop and worker threads read while the compute thread changes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import torch
from lone_parts import LoneParts, lone_parts

from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.state import OuterState
from neuroswarm.node.replica import Replica


class Meddling(bytes):
    """A digest that equals no other; while it is compared the replica moves."""

    def __new__(cls, _replica: Replica, _loop: asyncio.AbstractEventLoop) -> Meddling:
        return super().__new__(cls, bytes(32))

    def __init__(self, replica: Replica, loop: asyncio.AbstractEventLoop) -> None:
        self._replica, self._loop = replica, loop

    def __eq__(self, other: object) -> bool:
        move = self._replica.move(next_state(self._replica.state))
        asyncio.run_coroutine_threadsafe(move, self._loop).result()
        return False

    __hash__ = bytes.__hash__


def next_state(state: OuterState) -> OuterState:
    return advance(state, []).state


async def test_a_state_is_looked_for_while_the_node_moves():
    async with lone_parts() as parts:
        replica = parts.replica
        wanted = Meddling(replica, asyncio.get_running_loop())
        await replica.move(next_state(replica.state))
        assert await asyncio.to_thread(replica.find_state, wanted) is None
        assert replica.state.round == 3, "moved twice, for the two states that were compared"


async def test_so_many_states_are_retained_newest_first():
    async with lone_parts() as parts:
        for _ in range(6):
            await parts.replica.move(next_state(parts.replica.state))
        held = parts.replica.states()
        assert [state.round for state in held] == [6, 5, 4, 3]
        await parts.replica.move(next_state(parts.replica.state))
        assert [state.round for state in held] == [6, 5, 4, 3], "what was given out stays"
        assert parts.replica.find_state(held[0].digest) is held[0]
        assert parts.replica.find_state(parts.genesis.digest) is None


def with_rules(state: OuterState, **rules: object) -> OuterState:
    return replace(state, rules=state.rules.model_copy(update=rules))


async def has_moved(parts: LoneParts) -> bool:
    """Whether an inner step changes the parameters."""
    before = (await parts.replica.snapshot()).local
    await parts.compute.run(parts.replica.step)
    after = (await parts.replica.snapshot()).local
    return not all(map(torch.equal, before, after))


async def test_every_state_brings_its_optimiser_and_its_rate_whatever_the_node_s_settings():
    async with lone_parts() as parts:
        replica = parts.replica
        falling = {"inner_optimizer": "muon", "lr_schedule": "wsd", "lr_floor": 0.0}
        muon = with_rules(parts.genesis, **falling, schedule_rounds=2, warmup_steps=0)
        await replica.adopt(muon)
        assert await has_moved(parts)
        tensors, _ = (await replica.snapshot()).inner
        assert any(name.startswith("muon.") for name in tensors)
        await replica.move(next_state(replica.state))
        assert await has_moved(parts), "the rate falls in the last fifth of two rounds alone"
        await replica.move(next_state(replica.state))
        assert not await has_moved(parts), "the schedule is over"
        await replica.move(with_rules(next_state(replica.state), schedule_rounds=0))
        assert await has_moved(parts), "the owner has ended the schedule"
        await replica.move(with_rules(next_state(replica.state), inner_optimizer="adamw"))
        tensors, _ = (await replica.snapshot()).inner
        assert not tensors, "another optimiser starts anew"


async def test_a_restored_replica_has_the_optimiser_and_the_rate_of_its_state():
    async with lone_parts() as first, lone_parts() as second:
        over = {"inner_optimizer": "muon", "lr_schedule": "cosine", "lr_floor": 0.0}
        await first.replica.adopt(with_rules(first.genesis, **over, schedule_rounds=1))
        await first.compute.run(first.replica.step)
        await first.replica.move(next_state(first.replica.state))
        snapshot = await first.replica.snapshot()
        await second.replica.restore(snapshot, has_published=False)
        restored = await second.replica.snapshot()
        assert restored.inner[0].keys() == snapshot.inner[0].keys()
        assert not await has_moved(second)
