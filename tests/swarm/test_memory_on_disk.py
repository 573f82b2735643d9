"""What nodes keep on disk instead of in memory serves the swarm all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.gossip.archive import Archive
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm


def put_away(member: Member) -> int:
    return sum(not state.is_in_memory for state in member.parts.replica.former_states)


def archive(member: Member) -> Archive:
    return member.parts.rounds.intake.archive


async def test_former_states_publications_and_payloads_leave_the_memory(tmp_path: Path):
    async with Swarm(tmp_path, step_s=0.05) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        await swarm.more_rounds(5)
        await swarm.until(lambda: all(put_away(m) >= 2 for m in (anna, bert)), what="the disk")
        assert anna.parts.replica.state.is_in_memory
        assert any(not p.is_in_memory for p in anna.parts.replica.settled_publications())
        assert anna.parts.home.shelf.bytes_written > 0
        state = next(s for s in anna.parts.replica.former_states if not s.is_in_memory)
        fetched = await bert.parts.rounds.downloader.fetch(
            state.digest, lambda: [peer.address for peer in bert.parts.rounds.crowd.live()]
        )
        assert fetched.digest == state.digest
        assert fetched.is_in_memory


@pytest.mark.parametrize("choice", ["off", "auto"])
async def test_where_nothing_may_be_written_it_stays_in_memory(tmp_path: Path, choice: str):
    settings = {"checkpoint": {"daily_write_mb": 1}, "resources": {"memory_to_disk": choice}}
    async with Swarm(tmp_path, step_s=0.05, **settings) as swarm:
        anna, _ = await swarm.found("anna", "bert")
        await swarm.more_rounds(3)
        await swarm.until_level()
        assert anna.parts.home.shelf.bytes_written == 0
        assert all(p.is_in_memory for p in anna.parts.replica.settled_publications())
        assert len(archive(anna).in_memory_before(anna.round)) > 0
