"""When a node may speak: not while it listens, nor after a gap, nor once it lost its key."""

from __future__ import annotations

import asyncio

import pytest

from neuroswarm.clock import LivedClock
from neuroswarm.errors import ClonedIdentity
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.presence import Presence
from neuroswarm.node.vigil import LISTEN_INTERVALS, Vigil, longest_pause_s
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import NodeId

INTERVAL_S = 5.0


class Scene:
    def __init__(self) -> None:
        self.real = FakeClock()
        clock = LivedClock(self.real, longest_pause_s=longest_pause_s(INTERVAL_S))
        self.presence = Presence()
        self.woken = 0
        peers = PeerTable(NodeId(bytes(20)), INTERVAL_S)
        self.vigil = Vigil(clock, self.presence, peers, on_wake=self.wake)

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_new_node_speaks_at_once_and_one_with_an_old_key_listens_first(scene: Scene):
    assert scene.vigil.may_speak()
    scene.vigil.listen()
    assert not scene.vigil.may_speak()
    await scene.real.advance(LISTEN_INTERVALS * INTERVAL_S)
    assert scene.vigil.may_speak()
    assert scene.presence.is_settled


@pytest.mark.parametrize("kind", ["stop", "suspend"])
async def test_after_a_gap_it_listens_under_another_name_and_says_hello(scene: Scene, kind: str):
    watching = asyncio.ensure_future(scene.vigil.watch())
    await scene.real.advance(INTERVAL_S)
    assert scene.vigil.may_speak()
    name = scene.presence.instance
    getattr(scene.real, kind)(1000.0)
    assert not scene.vigil.may_speak()
    await scene.real.advance(INTERVAL_S / 2)
    assert (scene.woken, scene.vigil.num_gaps) == (1, 1)
    assert scene.presence.instance != name
    assert not scene.vigil.may_speak()
    await scene.real.advance(LISTEN_INTERVALS * INTERVAL_S)
    assert scene.vigil.may_speak()
    watching.cancel()


async def test_a_node_that_lost_its_key_says_nothing_and_fails(scene: Scene):
    scene.presence.is_lost = True
    assert not scene.vigil.may_speak()
    with pytest.raises(ClonedIdentity, match="another node goes on"):
        await scene.vigil.watch()
