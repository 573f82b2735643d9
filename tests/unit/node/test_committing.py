"""The model and the history of its rounds change together, also when a node stops meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from lone_parts import LoneParts, lone_parts

from neuroswarm.diloco.outer import advance
from neuroswarm.node.inquiry import Download
from neuroswarm.rounds.history import History
from neuroswarm.testing.speaker import Speaker

LONGEST_S = 30.0


def commit(parts: LoneParts) -> Awaitable[object]:
    return parts.committer.commit((), ())


def jump(parts: LoneParts) -> Awaitable[object]:
    state = advance(parts.genesis, []).state
    return parts.committer.jump(Download(state, Speaker("donor").address, None, 0))


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
            shift = parts.trainer.shift_fragment

            def shift_slowly(index: int, delta: object) -> None:
                if index == 0:
                    hold_up()
                shift(index, delta)

            parts.trainer.shift_fragment = shift_slowly
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


@pytest.mark.parametrize(("last_common", "kept"), [(3, [1, 2, 3]), (0, []), (None, [])])
async def test_after_a_jump_only_rounds_that_both_lineages_share_are_remembered(
    last_common: int | None, kept: list[int]
):
    """Those between the fork and the first round that the other side told of are the lost one's."""
    async with lone_parts() as parts:
        earlier = {round_: bytes([round_]) * 32 for round_ in range(1, 8)}
        parts.intake.history = History(8, bytes(32), earlier=earlier)
        state = replace(advance(parts.genesis, []).state, round=9)
        donor = Speaker("donor").address
        await parts.committer.jump(Download(state, donor, None, last_common))
        history = parts.intake.history
        assert [r for r in range(20) if history.digest_at(r) is not None] == [*kept, 9]
