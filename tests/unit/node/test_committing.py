"""The model and the history of its rounds change together, also when a node stops meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from lone_parts import LoneParts, lone_parts

from neuroswarm.diloco.outer import advance
from neuroswarm.node.inquiry import Download
from neuroswarm.testing.speaker import Speaker

LONGEST_S = 30.0


def commit(parts: LoneParts) -> Awaitable[object]:
    return parts.committer.commit((), ())


def jump(parts: LoneParts) -> Awaitable[object]:
    state = advance(parts.genesis, []).state
    return parts.committer.jump(Download(state, Speaker("donor").address, None))


@pytest.mark.parametrize("move", [commit, jump])
@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_stop_in_the_middle_of_a_move_leaves_both_or_neither(
    move: Callable[[LoneParts], Awaitable[object]], is_begun: bool
):
    began, go = threading.Event(), threading.Event()

    def hold_up() -> None:
        began.set()
        assert go.wait(LONGEST_S)

    async with lone_parts() as parts:
        if is_begun:
            shift = parts.trainer.shift

            def shift_slowly(deltas: object) -> None:
                hold_up()
                shift(deltas)

            parts.trainer.shift = shift_slowly
        else:
            parts.compute.queue(hold_up)
        moving = asyncio.gather(move(parts))
        assert await asyncio.to_thread(began.wait, LONGEST_S)
        for _ in range(20):  # until the move stands in the queue of the compute thread
            await asyncio.to_thread(lambda: None)
        moving.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await moving
        state, history = parts.replica.state, parts.intake.history
        assert state.round == (1 if is_begun else 0)
        assert history is not None
        assert (history.round, history.digest) == (state.round, state.digest)
