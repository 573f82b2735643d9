"""Newcomers and the peers that give them the state."""

from __future__ import annotations

import asyncio
from pathlib import Path

from neuroswarm.testing.faults import Passage
from neuroswarm.testing.swarm import Swarm
from neuroswarm.values import NodeId

NAMES = ("anna", "bert", "carl")
PIECE = "State/Piece"
STEP_S = 0.1


async def test_five_joiners_at_once_spread_over_the_donors(tmp_path: Path):
    async with Swarm(tmp_path, step_s=STEP_S) as swarm:
        members = await swarm.found(*NAMES)
        asked: dict[NodeId, set[NodeId]] = {}

        def note(passage: Passage) -> bool:
            if not passage.is_reply:
                joiner, donor = NodeId(bytes(passage.source)), NodeId(bytes(passage.target))
                asked.setdefault(donor, set()).add(joiner)
            return False

        for is_reply in (False, True):
            swarm.network.drop(method=PIECE, when=note, replies=is_reply)
        joiners = await swarm.start(*(f"joiner {k}" for k in range(5)))
        assert len(asked.keys() & {member.node_id for member in members}) >= 2
        assert set().union(*asked.values()) == {joiner.node_id for joiner in joiners}
        await swarm.more_rounds(2)
        await swarm.until_level()
        assert all(not peer.parts.membership.peers.is_banned(m.node_id, 0)
                   for peer in swarm.running for m in swarm.running)  # fmt: skip


async def test_a_slow_joiner_holds_nobody_up_and_gets_a_state_that_rounds_have_left_behind(
    tmp_path: Path,
):
    async with Swarm(tmp_path, step_s=STEP_S, rounds={"max_retained_states": 2}) as swarm:
        others = await swarm.found(*NAMES)
        await swarm.until_round(1)
        is_link_down = True
        cut = swarm.network.drop(method=PIECE, replies=True, when=lambda _: is_link_down)
        joining = asyncio.ensure_future(swarm.start("dora"))
        await swarm.until(lambda: cut.fired > 0, what="a piece to get lost")
        dora = swarm.members["dora"]
        began = max(member.round for member in others)
        await swarm.more_rounds(4, others)
        told = dora.parts.reporter.status()["joining"]
        assert isinstance(told, dict)
        assert told["percent"] < 100
        assert told["round"] <= began
        assert any(member.parts.rounds.donor.num_pinned for member in others)
        is_link_down = False
        await joining
        assert dora.first_round <= began
        assert dora.parts.reporter.status()["joining"] is None
        await swarm.until(
            lambda: all(dora.node_id in m.parts.replica.state.applied for m in swarm.running),
            what="dora's part",
        )
        await swarm.until_level()
        assert not list((dora.folder / "incoming").iterdir())
