"""What the event loop and worker threads read while the compute thread changes it."""

from __future__ import annotations

import asyncio

from lone_parts import lone_parts

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
