"""Shards come whole and right from whoever holds them, whatever the donors do."""

from __future__ import annotations

from pathlib import Path

import pytest
from shard_scene import (
    BYTES,
    CORPUS,
    HASHES,
    HELD,
    SHARDS,
    Files,
    Memory,
    ShardScene,
    name,
    node,
    shorten_waits,
)

from neuroswarm.errors import ProtocolViolation, WrongPayload
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import shard_stream
from neuroswarm.transfer.shard_sightings import MAX_ASKED_AT_ONCE, ShardSightings
from neuroswarm.transfer.upload_bounds import MAX_PIECES_AT_ONCE
from neuroswarm.v1 import shards_pb2, state_pb2
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire import limits

EVERYTHING = range(len(SHARDS))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    shorten_waits(monkeypatch)


@pytest.fixture
def scene(tmp_path: Path) -> ShardScene:
    return ShardScene(tmp_path)


def data_of(message: bytes) -> bytes:
    return bytes(shards_pb2.BytesChunk.FromString(message).data)


async def test_all_shards_come_from_those_that_hold_them(scene: ShardScene):
    first = await scene.donor("first", 0, 1, 2, 3, 4)
    second = await scene.donor("second", 4, 5, 6, 7)
    landed = []
    crew = await scene.crew(*EVERYTHING)
    crew.on_landed = landed.append
    async with crew:
        await scene.until_whole(*EVERYTHING)
    assert sorted(landed) == list(EVERYTHING)
    assert crew.bytes_fetched == sum(map(len, SHARDS)), "nothing comes twice"
    assert first.bytes_given > 0 < second.bytes_given
    assert not crew.wanted
    assert not scene.blamed


async def test_only_what_is_wanted_comes_the_most_urgent_first(scene: ShardScene):
    await scene.donor("donor", *EVERYTHING, max_downloads=1)
    landed = []
    crew = await scene.crew(6, 1)
    crew.on_landed = landed.append
    async with crew:
        await scene.until_whole(6, 1)
        crew.want([name(3)])
        await scene.until_whole(3)
    assert landed[-1] == 3
    assert set(landed) == scene.memory.whole.keys() == {1, 3, 6}


async def test_another_donor_goes_on_where_one_stops(
    scene: ShardScene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_stream, "STALL_S", 0.1)
    await scene.donor("stalls", 2)
    scene.network.delay(60.0, source=node("stalls"), method=BYTES)
    seen = []

    def watch(passage: Passage) -> bool:
        if passage.method == BYTES and not passage.is_reply:
            request = shards_pb2.BytesRequest.FromString(passage.data)
            seen.append((NodeId(bytes(passage.target)), request.offset))
        return False

    scene.network.drop(when=watch)
    async with await scene.crew(2) as crew:
        await until(lambda: bool(seen), what="a first request")
        await scene.donor("helps", 2)
        await scene.until_whole(2)
        assert crew.bytes_fetched >= len(SHARDS[2])
    assert {donor for donor, _ in seen} == {node("stalls"), node("helps")}
    assert not scene.blamed, "to be slow is no lie"


async def test_bytes_that_came_before_a_donor_died_are_kept(scene: ShardScene):
    memory = scene.memory
    await scene.liar("dies", 5, tamper=lambda _call, messages: messages[:1])
    async with await scene.crew(5) as crew:
        await until(lambda: memory.received(5) > 0, what="a beginning")
        scene.network.kill(node("dies"))
        await scene.donor("helps", 5)
        await scene.until_whole(5)
        assert crew.bytes_fetched == len(SHARDS[5])


async def test_a_restart_goes_on_with_what_is_on_the_disk(scene: ShardScene):
    scene.memory.write(4, 0, SHARDS[4][:30_000])
    await scene.donor("donor", 4)
    async with await scene.crew(4) as crew:
        await scene.until_whole(4)
        assert crew.bytes_fetched == len(SHARDS[4]) - 30_000


async def test_who_sends_other_bytes_is_blamed_left_and_asked_no_more(scene: ShardScene):
    def lie(_call: int, messages: list[bytes]) -> list[bytes]:
        wrong = bytes(b ^ 1 for b in data_of(messages[0]))
        return [shards_pb2.BytesChunk(data=wrong).SerializeToString(), *messages[1:]]

    await scene.liar("liar", 0, 1, tamper=lie)
    async with await scene.crew(0, 1) as crew:
        await until(lambda: bool(scene.blamed), what="blame")
        assert not scene.memory.whole
        await scene.donor("honest", 0, 1)
        await scene.until_whole(0, 1)
        assert crew.num_wrong >= 1
    assert {peer for peer, _ in scene.blamed} == {node("liar")}
    assert isinstance(scene.blamed[0][1], WrongPayload)


async def test_a_wrong_shard_of_several_donors_is_held_against_nobody_and_fetched_from_one(
    scene: ShardScene,
):
    scene.memory.write(3, 0, b"\xff" * 10_000)  # of a former life
    await scene.donor("honest", 3)
    async with await scene.crew(3) as crew:
        await scene.until_whole(3)
        assert crew.num_wrong == 1
    assert not scene.blamed


@pytest.mark.parametrize(
    "message",
    [
        shards_pb2.BytesChunk(data=bytes(limits.MAX_CHUNK_BYTES + 1)).SerializeToString(),
        shards_pb2.BytesChunk(data=bytes(limits.MAX_CHUNK_BYTES - 100)).SerializeToString(),
        shards_pb2.BytesChunk().SerializeToString(),
        b"\xff\xff",
    ],
    ids=["too large", "longer than asked for", "empty", "garbage"],
)
async def test_what_no_honest_donor_sends_is_blamed(scene: ShardScene, message: bytes):
    await scene.liar("liar", 0, tamper=lambda _call, _messages: [message])
    async with await scene.crew(0):
        await until(lambda: bool(scene.blamed), what="blame")
        await scene.donor("honest", 0)
        await scene.until_whole(0)
    assert [peer for peer, _ in scene.blamed] == [node("liar")]


async def test_a_donor_that_has_let_go_of_a_shard_is_no_liar(scene: ShardScene):
    files = Files(scene.folder / "forgets", 0, 1)
    await scene.donor("forgets", files=files)
    async with await scene.crew() as crew:
        await until(lambda: crew.sightings.obtainable == 0b11, what="a sighting")
        files.held.discard(0)
        crew.want([name(0), name(1)])
        await scene.until_whole(1)
        await until(lambda: not crew.sightings.obtainable & 1, what="the news")
    assert not scene.blamed


async def test_without_donors_it_waits_and_begins_when_one_comes(scene: ShardScene):
    async with await scene.crew(0) as crew:
        await scene.donor("has others", 1)
        await until(lambda: crew.sightings.obtainable == 0b10, what="a sighting")
        assert crew.bytes_fetched == 0
        await scene.donor("has it", 0)
        await scene.until_whole(0)


async def test_a_full_disk_is_told_and_nobody_blamed(scene: ShardScene):
    await scene.donor("donor", 0)
    scene.memory.failure = "cannot write: No space left on device"
    async with await scene.crew(0) as crew:
        await until(lambda: bool(scene.disk_failures), what="the failure")
        crew.want(())
        scene.memory.failure = None
        crew.want([name(0)])
        await scene.until_whole(0)
    assert not scene.blamed


async def test_what_may_not_come_in_is_not_asked_for(scene: ShardScene):
    donor = await scene.donor("donor", 0)
    crew = await scene.crew(0)
    is_open = False
    crew.may_fetch = lambda _num_bytes: is_open
    async with crew:
        await until(lambda: crew.sightings.obtainable == 1, what="a sighting")
        assert donor.bytes_given == 0
        is_open = True
        await scene.until_whole(0)


async def test_a_donor_that_serves_as_many_as_it_wants_is_asked_again(scene: ShardScene):
    await scene.donor("donor", *EVERYTHING, max_downloads=1)
    other = ShardScene(scene.folder, network=scene.network, memory=Memory())
    other.addresses = scene.addresses
    async with await scene.crew(0, 1, 2):
        await scene.until_whole(0, 1, 2)
    assert not scene.blamed


# -- what a donor answers --------------------------------------------------------------


async def ask(scene: ShardScene, request: shards_pb2.BytesRequest) -> list[bytes]:
    rpc = scene.network.rpc(node("curious"))
    await rpc.start()
    stream = rpc.stream(scene.addresses[0], BYTES, request.SerializeToString(), timeout_s=5)
    return [message async for message in stream]


async def test_a_donor_gives_the_range_that_is_asked_for_in_small_parts(scene: ShardScene):
    await scene.donor("donor", 7)
    found = await ask(scene, shards_pb2.BytesRequest(sha256=HASHES[7], offset=100, length=40_000))
    assert b"".join(map(data_of, found)) == SHARDS[7][100:40_100]
    assert max(map(len, map(data_of, found))) <= limits.MAX_PIECE_CHUNK_BYTES
    end = shards_pb2.BytesRequest(sha256=HASHES[7], offset=50_000, length=4 * 1024 * 1024)
    assert b"".join(map(data_of, await ask(scene, end))) == SHARDS[7][50_000:]
    for offset in (len(SHARDS[7]), 2**40, limits.MAX_COUNT):
        beyond = shards_pb2.BytesRequest(sha256=HASHES[7], offset=offset, length=10)
        assert await ask(scene, beyond) == []


async def test_a_donor_gives_nothing_but_its_shards(scene: ShardScene):
    await scene.donor("donor", 0)
    for sha256 in (bytes(32), HASHES[1]):
        (found,) = await ask(scene, shards_pb2.BytesRequest(sha256=sha256, length=10))
        assert shards_pb2.BytesChunk.FromString(found).refusal == state_pb2.REFUSAL_GONE
    for sha256 in (b"", b"../../secret", bytes(33)):
        with pytest.raises(ProtocolViolation, match="hash of"):
            await ask(scene, shards_pb2.BytesRequest(sha256=sha256, length=10))
    for offset in (2**53 + 1, 2**63, 2**64 - 1):
        with pytest.raises(ProtocolViolation, match=f"offset {offset}"):
            await ask(scene, shards_pb2.BytesRequest(sha256=HASHES[0], offset=offset, length=10))
    with pytest.raises(ProtocolViolation, match="range too long: 4194305 bytes"):
        await ask(scene, shards_pb2.BytesRequest(sha256=HASHES[0], length=4 * 1024 * 1024 + 1))


async def test_a_donor_serves_one_peer_only_so_much_at_once(scene: ShardScene):
    await scene.donor("donor", 0)
    rpc = scene.network.rpc(node("greedy"))
    await rpc.start()
    request = shards_pb2.BytesRequest(sha256=HASHES[0], length=40_000).SerializeToString()
    streams = [
        rpc.stream(scene.addresses[0], BYTES, request, timeout_s=5)
        for _ in range(MAX_PIECES_AT_ONCE + 1)
    ]
    firsts = [await anext(stream) for stream in streams]
    assert all(data_of(first) for first in firsts[:-1])
    last = shards_pb2.BytesChunk.FromString(firsts[-1])
    assert last.refusal == state_pb2.REFUSAL_BUSY


async def test_who_has_another_corpus_or_none_says_so(scene: ShardScene):
    await scene.donor("donor", 0, 2)
    rpc = scene.network.rpc(node("curious"))
    await rpc.start()

    async def held(corpus: bytes) -> shards_pb2.HeldReply:
        request = shards_pb2.HeldRequest(corpus=corpus).SerializeToString()
        reply = await rpc.call(scene.addresses[0], HELD, request, timeout_s=5)
        return shards_pb2.HeldReply.FromString(reply)

    assert (await held(CORPUS)).held == bytes([0b101])
    assert not (await held(bytes(32))).is_known
    assert not (await held(b"")).is_known


async def test_an_answer_that_no_node_gives_is_no_sighting(scene: ShardScene):
    rpc = scene.network.rpc(node("braggart"))

    async def brag(_caller: NodeId, _data: bytes) -> bytes:
        held = b"\xff" * (limits.MAX_SHARDS // 8 + 1)
        return shards_pb2.HeldReply(is_known=True, held=held).SerializeToString()

    rpc.serve_unary(HELD, brag)
    await rpc.start()
    scene.addresses.append(rpc.address)
    await scene.donor("honest", 1)
    async with await scene.crew() as crew:
        await until(lambda: crew.sightings.obtainable != 0, what="a sighting")
        assert crew.sightings.obtainable == 0b10


# -- whom to ask -----------------------------------------------------------------------


def peers(count: int) -> list[PeerAddress]:
    return [PeerAddress(node(f"p{k}"), Endpoint("10.0.0.1", 1 + k)) for k in range(count)]


def test_few_are_asked_at_once_and_everybody_in_turn():
    sightings, live = ShardSightings(8), peers(40)
    asked = [sightings.choose(live, k / 1000, is_urgent=False) for k in range(3)]
    assert list(map(len, asked)) == [MAX_ASKED_AT_ONCE, MAX_ASKED_AT_ONCE, 8]
    assert {peer for some in asked for peer in some} == set(live)


def test_who_is_gone_is_forgotten_and_what_is_beyond_the_corpus_ignored():
    sightings, (first, second) = ShardSightings(8), peers(2)
    sightings.choose([first, second], 0.0, is_urgent=False)
    sightings.note(first.node_id, b"\x03\xff")
    sightings.note(second.node_id, b"\x04")
    sightings.note(node("nobody"), b"\xff")
    assert sightings.obtainable == 0b111
    assert sightings.num_holders == 2
    sightings.lost(first.node_id, 0)
    assert sightings.held_by(first.node_id) == 0b10
    sightings.choose([second], 1.0, is_urgent=False)
    assert sightings.obtainable == 0b100
    assert sightings.held_by(first.node_id) == 0
