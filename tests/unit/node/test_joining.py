"""Which state a newcomer downloads, and whom a node that comes back waits for."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node import donors
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.donors import OUTDONE_S, Candidates, FirstLook, Rivals
from neuroswarm.node.joining import Joiner, rank_states
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import ARCHITECTURE, SWARM, Speaker
from neuroswarm.transfer.donor import StateDonor
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.v1 import state_pb2
from neuroswarm.values import Endpoint, NodeId

COMMON, RARE, OTHER = b"c" * 32, b"r" * 32, b"o" * 32
ME = Speaker("me")


def peer(name: str, round_: int, digest: bytes) -> Peer:
    speaker = Speaker(name, round_=round_, base=digest)
    signed, heartbeat = speaker.heartbeat()
    return Peer(speaker.node_id, heartbeat, signed, last_seen_s=0.0)


def test_the_state_that_most_peers_hold_comes_first():
    holders = [peer("a", 5, COMMON), peer("b", 9, RARE), peer("c", 5, COMMON)]
    (digest, donors), (second, others) = rank_states(holders)
    assert (digest, second) == (COMMON, RARE)
    assert {donor.node_id for donor in donors} == {Speaker("a").node_id, Speaker("c").node_id}
    assert [donor.node_id for donor in others] == [Speaker("b").node_id]


def test_the_newest_of_equally_common_states_comes_first():
    ranked = rank_states([peer("a", 5, OTHER), peer("b", 6, COMMON)])
    assert [digest for digest, _ in ranked] == [COMMON, OTHER]


def test_every_node_breaks_a_tie_alike():
    holders = [peer("a", 5, OTHER), peer("b", 5, COMMON)]
    assert rank_states(holders) == rank_states(holders[::-1])
    assert rank_states(holders)[0][0] == max(OTHER, COMMON)


@pytest.mark.parametrize(("heard_after_s", "waited_s"), [(0.0, 0.0), (1.0, 1.0), (9.0, 5.0)])
async def test_a_node_that_comes_back_waits_for_the_first_peer(
    heard_after_s: float, waited_s: float
):
    clock = FakeClock()
    peers = PeerTable(ME.node_id, 5.0)
    crowd = Crowd(peers, SWARM, clock, mute_after_s=30.0)
    rpc = MemoryNetwork().rpc(ME.node_id, Endpoint("10.0.0.1", 8101))
    downloader = StateDownloader(
        rpc, ARCHITECTURE, (), folder=None, blame=crowd.misbehaved, clock=clock
    )
    joiner = Joiner(downloader, crowd, clock=clock)
    started_at = clock.monotonic()
    waiting = asyncio.ensure_future(joiner.wait_for_peers(5.0))
    while not waiting.done():
        if clock.monotonic() - started_at >= heard_after_s:
            peers.observe(*Speaker("anna").heartbeat(), clock.monotonic(), host_seen=None)
        await clock.advance(0.1)
    assert clock.monotonic() - started_at == pytest.approx(waited_s, abs=0.3)


# -- states that a former life began to download ---------------------------------------

SHAPE = (("body", 200_000), ("head", 3))


def make_state(round_: int) -> OuterState:
    values = torch.Generator().manual_seed(round_)
    named = [(name, torch.rand(size, generator=values)) for name, size in SHAPE]
    return dataclasses.replace(genesis(Rules(), ARCHITECTURE, named), round=round_)


OLD, NEW = make_state(5), make_state(7)


@pytest.mark.parametrize("is_served", [True, False], ids=["still served", "gone"])
async def test_a_joiner_that_was_killed_goes_on_with_the_state_that_it_began(
    tmp_path: Path, is_served: bool
):
    network, clock, anna = MemoryNetwork(), SystemClock(), Speaker("anna", round_=7)
    donor_end = network.rpc(anna.node_id)
    states = (NEW, OLD) if is_served else (NEW,)
    StateDonor(donor_end, lambda: states, RoundConfig(), clock=clock)
    peers = PeerTable(ME.node_id, 5.0)
    crowd = Crowd(peers, SWARM, clock, mute_after_s=30.0)
    signed, heartbeat = anna.heartbeat(digest=NEW.digest)
    peers.observe(signed, heartbeat, clock.monotonic(), host_seen=None)
    rpc = network.rpc(ME.node_id)
    for end in (donor_end, rpc):
        await end.start()
    downloader = StateDownloader(
        rpc, ARCHITECTURE, SHAPE, folder=tmp_path, blame=crowd.misbehaved, clock=clock
    )
    (tmp_path / OLD.digest.hex()).write_bytes(b"".join(values_of(OLD))[: 2**20])
    joiner = Joiner(downloader, crowd, clock=clock, listen_s=0.0)
    found, is_founder = await joiner.find_state(refuse_genesis, wait_s=5.0)
    assert not is_founder
    assert found.digest == (OLD if is_served else NEW).digest
    assert (tmp_path / OLD.digest.hex()).exists() == is_served
    saved = 2**20 if is_served else 0
    assert downloader.bytes_fetched == 8 * 200_003 - saved


def values_of(state: OuterState) -> list[bytes]:
    return [
        values.numpy().tobytes()
        for fragment in state.fragments
        for values in (fragment.params, fragment.momentum)
    ]


def refuse_genesis() -> OuterState:
    raise AssertionError("there is a swarm")


# -- a hostile peer that is heard of first ---------------------------------------------

HONEST = ("anna", "bert", "carl")


class Town:
    """A joiner, honest holders of NEW, and mallory, who holds OLD and gives a byte at a time."""

    def __init__(self, folder: Path | None = None, *, does_dribble: bool = True) -> None:
        self.clock = SystemClock()
        self.network = MemoryNetwork()
        self.peers = PeerTable(ME.node_id, 5.0)
        self.crowd = Crowd(self.peers, SWARM, self.clock, mute_after_s=30.0)
        self.has_dribbled, self.has_given = asyncio.Event(), asyncio.Event()
        self.ends = [self.network.rpc(Speaker(name).node_id) for name in ("mallory", *HONEST)]
        for end in self.ends:
            state = NEW if end is not self.ends[0] else OLD
            StateDonor(end, lambda state=state: (state,), RoundConfig(), clock=self.clock)
        for end in self.ends:
            self.note_giving(end)
        if does_dribble:
            self.ends[0]._stream["State/Piece"] = self.dribble
        self.ends.append(self.network.rpc(ME.node_id))
        self.downloader = StateDownloader(
            self.ends[-1], ARCHITECTURE, SHAPE,
            folder=folder, blame=self.crowd.misbehaved, clock=self.clock,
        )  # fmt: skip

    async def dribble(self, _caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = state_pb2.PieceRequest.FromString(data)
        for value in b"".join(values_of(OLD))[request.piece * 2**20 + request.offset :]:
            self.has_dribbled.set()
            yield state_pb2.PieceChunk(data=bytes([value])).SerializeToString()
            await self.clock.sleep(0.01)

    async def start(self) -> None:
        for end in self.ends:
            await end.start()

    def hear(self, *names: str) -> None:
        for name in names:
            state = OLD if name == "mallory" else NEW
            speaker = Speaker(name, round_=state.round)
            signed, heartbeat = speaker.heartbeat(digest=state.digest)
            self.peers.observe(signed, heartbeat, self.clock.monotonic(), host_seen=None)

    def note_giving(self, end: MemoryRpc) -> None:
        give = end._stream["State/Piece"]

        def noted(caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
            self.has_given.set()
            return give(caller, data)

        end._stream["State/Piece"] = noted

    async def join(self, listen_s: float = 0.0, clock: Clock | None = None) -> OuterState:
        joiner = Joiner(self.downloader, self.crowd, clock=clock or self.clock, listen_s=listen_s)
        async with asyncio.timeout(10):
            found, _ = await joiner.find_state(refuse_genesis, wait_s=5.0)
        return found


async def test_a_joiner_leaves_a_slow_download_when_most_peers_hold_another_state(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(donors, "OUTDONE_S", 0.2)
    town = Town()
    await town.start()
    town.hear("mallory")
    joining = asyncio.ensure_future(town.join())
    await town.has_dribbled.wait()
    town.hear(*HONEST)
    assert (await joining).digest == NEW.digest


async def test_a_joiner_listens_before_it_settles_for_what_the_first_peer_holds():
    town = Town()
    await town.start()
    town.hear("mallory")
    joining = asyncio.ensure_future(town.join(listen_s=0.3))
    await town.has_dribbled.wait()
    town.hear(*HONEST)
    assert (await joining).digest == NEW.digest


async def test_what_was_fetched_while_others_were_listened_for_is_not_fetched_again():
    town, listening = Town(), FakeClock()
    await town.start()
    town.hear("anna")
    joining = asyncio.ensure_future(town.join(listen_s=1.0, clock=listening))
    await town.has_given.wait()
    town.hear("mallory", "bert", "carl")
    await asyncio.wait([joining], timeout=0.1)
    assert not joining.done()
    await listening.advance(1.0)
    assert (await joining).digest == NEW.digest
    assert town.downloader.bytes_fetched == 8 * 200_003


async def test_a_state_that_was_there_at_once_gives_way_to_the_one_of_the_others(tmp_path: Path):
    town, listening = Town(tmp_path, does_dribble=False), FakeClock()
    await town.start()
    town.hear("mallory")
    joining = asyncio.ensure_future(town.join(listen_s=1.0, clock=listening))
    while not town.downloader.bytes_fetched:
        await asyncio.wait([joining], timeout=0.01)
    town.hear(*HONEST)
    await listening.advance(1.0)
    assert (await joining).digest == NEW.digest
    assert not (tmp_path / OLD.digest.hex()).exists()


async def test_what_was_begun_of_a_state_that_few_hold_is_not_gone_on_with(tmp_path: Path):
    town = Town(tmp_path)
    (tmp_path / OLD.digest.hex()).write_bytes(b"".join(values_of(OLD))[: 2**20])
    await town.start()
    town.hear("mallory", *HONEST)
    assert (await town.join()).digest == NEW.digest
    assert not town.has_dribbled.is_set()


@pytest.mark.parametrize(
    ("num_holders", "num_givers", "num_others", "is_outnumbered"),
    [(1, 0, 1, False), (1, 0, 2, True), (1, 1, 3, False), (2, 0, 2, False), (1, 1, 4, True)],
)
async def test_the_first_look_goes_by_who_holds_what(
    num_holders: int, num_givers: int, num_others: int, is_outnumbered: bool
):
    clock = FakeClock()
    live = [peer(f"holder {k}", 5, RARE) for k in range(num_holders)]
    live += [peer(f"other {k}", 6, COMMON) for k in range(num_others)]
    givers = [one.node_id for one in live[num_holders : num_holders + num_givers]]
    look = FirstLook(Candidates(lambda: live, RARE), lambda: givers, clock, clock.monotonic() + 1)
    assert not look()
    await clock.advance(1)
    assert look() == is_outnumbered


@pytest.mark.parametrize(
    ("first", "later", "is_outdone"),
    [(1, 3, True), (1, 2, False), (2, 4, False), (2, 5, True)],
)
async def test_a_state_is_outdone_by_clearly_more_holders_for_some_time(
    first: int, later: int, is_outdone: bool
):
    clock = FakeClock()
    begun = [peer(f"old {k}", 5, RARE) for k in range(first)]
    live = list(begun)
    rivals = Rivals(Candidates(lambda: live, RARE), clock)
    assert not rivals()
    live += [peer(f"new {k}", 6, COMMON) for k in range(later)]
    assert not rivals()
    await clock.advance(OUTDONE_S - 1)
    assert not rivals()
    await clock.advance(1)
    assert rivals() == is_outdone


async def test_a_state_that_its_holders_have_moved_on_from_is_not_outdone():
    clock = FakeClock()
    live = [peer(name, 5, RARE) for name in HONEST]
    rivals = Rivals(Candidates(lambda: live, RARE), clock)
    assert not rivals()
    live = [peer(name, 6, COMMON) for name in HONEST]
    assert not rivals()
    await clock.advance(OUTDONE_S)
    assert not rivals()
