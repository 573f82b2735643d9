"""What the event loop and worker threads read while the compute thread changes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import torch
from lone_parts import LoneParts, lone_parts

from neuroswarm.data.share import Share, share_of
from neuroswarm.diloco import applied
from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.state import OuterState
from neuroswarm.node.replica import Replica
from neuroswarm.values import NodeId


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


OTHERS = (NodeId(b"\0" * 20), NodeId(b"\xff" * 20))


def with_members(state: OuterState, *members: NodeId) -> OuterState:
    """The state, as if these had been agreed in the round before it."""
    table = applied.add({}, state.round - 1, [(member, bytes(32)) for member in members])
    return replace(state, applied=table)


def place(parts: LoneParts) -> tuple[Share, int]:
    """The share that the trainer reads, and the number of its next batch in it."""
    counters = parts.trainer.inner_state()[1]
    return Share(**counters["share"]), counters["position"] - counters["share_from"]


async def test_a_node_reads_the_share_of_the_state_that_it_stands_on():
    async with lone_parts() as parts:
        me, replica = parts.me.node_id, parts.replica
        assert place(parts) == (share_of(0, (), me), 0)
        await parts.compute.run(parts.trainer.step)
        first = with_members(next_state(replica.state), me, *OTHERS)
        await replica.move(first)
        assert place(parts) == (Share(1, 1, 4), 0)
        await parts.compute.run(parts.trainer.step)
        await parts.compute.run(parts.trainer.step)
        assert place(parts) == (Share(1, 1, 4), 2)
        elsewhere = with_members(next_state(parts.genesis), OTHERS[1])
        await replica.move(elsewhere)
        assert place(parts) == (share_of(1, (OTHERS[1],), me), 0), "of another lineage"
        await replica.move(first)
        assert place(parts) == (Share(1, 1, 4), 2), "it goes on where it was left"


async def test_a_snapshot_in_the_middle_of_a_round_brings_back_the_place_in_the_share():
    async with lone_parts() as parts, lone_parts() as other:
        me = parts.me.node_id
        await parts.replica.move(with_members(next_state(parts.genesis), me, OTHERS[0]))
        for _ in range(3):
            await parts.compute.run(parts.trainer.step)
        snapshot = await parts.replica.snapshot()
        await other.replica.restore(snapshot, has_published=False)
        assert place(other) == place(parts) == (Share(1, 1, 3), 3)
        for each in (parts, other):
            await each.compute.run(each.trainer.step)
        pairs = zip(parts.trainer.local(), other.trainer.local(), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
        newer = next_state(snapshot.outer)
        await other.replica.move(newer)
        assert place(other)[0].round == 2
        assert place(other)[1] == 0


async def test_each_member_evaluates_a_part_of_its_own():
    async with lone_parts() as parts:
        me = parts.me.node_id
        states = [
            with_members(next_state(parts.genesis), me, *others)
            for others in ((), OTHERS[:1], OTHERS[1:])
        ]
        losses = [await parts.replica.evaluate_state(state, 2) for state in states]
        assert len(set(losses)) == 3, "the same parameters on different parts"
        assert losses[0] == await parts.replica.evaluate_state(states[0], 2)


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
