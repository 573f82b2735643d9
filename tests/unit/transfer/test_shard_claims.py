"""What peers say that they hold counts as far as they give it, and as fast as they give it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shard_scene import BYTES, HASHES, SHARDS, Files, ShardScene, name, node, shorten_waits

from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import shard_crew, shard_donor, shard_pace, shard_sightings
from neuroswarm.transfer.donor_pool import MAX_KNOWN, SLOW_S, DonorPool
from neuroswarm.transfer.shard_donor import COUNTED_ON_S
from neuroswarm.transfer.shard_pace import (
    FLOOR_BYTES_PER_S,
    JUDGE_S,
    SLOW_FACTOR,
    ShardPace,
    is_far_slower,
)
from neuroswarm.transfer.shard_sightings import (
    DOUBT_AFTER,
    DOUBT_AFTER_S,
    DOUBT_S,
    ShardSightings,
)
from neuroswarm.v1 import shards_pb2, state_pb2
from neuroswarm.values import Endpoint, NodeId, PeerAddress

KIB = 1024.0
DROP_BYTES, DROP_S = 500, 0.002


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    shorten_waits(monkeypatch)


@pytest.fixture
def scene(tmp_path: Path) -> ShardScene:
    return ShardScene(tmp_path)


async def dripping(scene: ShardScene, speaker: str, *indices: int) -> list[bytes]:
    """A donor of 250 kB/s; returns the hashes that it is asked for."""
    rpc = scene.network.rpc(node(speaker))
    asked: list[bytes] = []

    async def held(_caller: NodeId, _data: bytes) -> bytes:
        bits = Files(scene.folder / speaker, *indices).held_bits()
        return shards_pb2.HeldReply(is_known=True, held=bits).SerializeToString()

    async def drip(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = shards_pb2.BytesRequest.FromString(data)
        asked.append(request.sha256)
        shard = SHARDS[HASHES.index(request.sha256)]
        for at in range(request.offset, len(shard), DROP_BYTES):
            drop = shard[at : at + DROP_BYTES]
            yield shards_pb2.BytesChunk(data=drop).SerializeToString()
            await scene.clock.sleep(DROP_S)

    rpc.serve_unary("Shards/Held", held)
    rpc.serve_stream(BYTES, drip)
    await rpc.start()
    scene.addresses.append(rpc.address)
    return asked


async def test_a_dripping_donor_is_left_for_others_and_what_it_gave_is_kept(
    scene: ShardScene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_pace, "JUDGE_S", 0.1)
    monkeypatch.setattr(shard_pace, "FLOOR_BYTES_PER_S", 5e5)
    asked = await dripping(scene, "drips", *range(8))
    async with await scene.crew(*range(8)) as crew:
        await until(lambda: crew.bytes_fetched > 0, what="a first drop")
        await scene.donor("honest", *range(8))
        await scene.until_whole(*range(8))
        assert crew.bytes_fetched == sum(map(len, SHARDS)), "nothing comes twice"
    assert len(asked) == len(set(asked)) <= shard_crew.NUM_AT_ONCE, "it is asked no more"
    assert not scene.blamed, "to be slow is no lie"


async def test_what_only_a_slow_donor_holds_comes_after_all(
    scene: ShardScene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_pace, "JUDGE_S", 0.1)
    monkeypatch.setattr(shard_pace, "FLOOR_BYTES_PER_S", 5e5)
    await dripping(scene, "drips", 0, 1, 2, 3)
    async with await scene.crew(0, 1, 2, 4, 5) as crew:
        await until(lambda: crew.bytes_fetched > 0, what="a first drop")
        await scene.donor("honest", 4, 5)
        await scene.until_whole(4, 5)
        assert len(scene.memory.whole) < 5
        await scene.until_whole(0, 1, 2)


async def test_only_one_shard_is_read_through_at_a_time(
    scene: ShardScene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_donor, "READER_S", 0.05)
    may_go_on, lock = threading.Event(), threading.Lock()

    class Unread(Files):
        num_reading = most = 0
        known = frozenset[bytes]()

        def is_to_be_read(self, sha256: bytes) -> bool:
            return sha256 not in self.known

        def find(self, sha256: bytes) -> Path | None:
            if self.is_to_be_read(sha256):
                with lock:
                    self.num_reading += 1
                    self.most = max(self.most, self.num_reading)
                may_go_on.wait(10)
                with lock:
                    self.num_reading -= 1
                    self.known |= {sha256}
            return super().find(sha256)

    files = Unread(scene.folder / "unread", *range(4))
    await scene.donor("donor", files=files, max_downloads=8)

    async def ask(speaker: str, index: int) -> shards_pb2.BytesChunk:
        rpc = scene.network.rpc(node(speaker))
        await rpc.start()
        request = shards_pb2.BytesRequest(sha256=HASHES[index], length=100)
        stream = rpc.stream(scene.addresses[0], BYTES, request.SerializeToString(), timeout_s=10)
        return shards_pb2.BytesChunk.FromString(await anext(aiter(stream)))

    first = asyncio.ensure_future(ask("goes away", 0))
    await until(lambda: files.num_reading == 1, what="a read")
    first.cancel()
    others = await asyncio.gather(*(ask(f"asker {index}", index) for index in (1, 2, 3)))
    assert {chunk.refusal for chunk in others} == {state_pb2.REFUSAL_BUSY}
    may_go_on.set()
    await until(lambda: files.num_reading == 0, what="the end of the read")
    assert (await ask("again", 0)).data == SHARDS[0][:100]
    assert files.most == 1


async def test_whoever_was_given_bytes_may_count_on_the_copy_for_a_while(tmp_path: Path):
    clock = FakeClock()
    scene = ShardScene(tmp_path, clock=clock)
    donor = await scene.donor("donor", 0, 1)
    rpc = scene.network.rpc(node("asker"))
    await rpc.start()
    request = shards_pb2.BytesRequest(sha256=HASHES[1], length=10).SerializeToString()
    assert [m async for m in rpc.stream(scene.addresses[0], BYTES, request, timeout_s=5)]
    assert [donor.is_counted_on(HASHES[index]) for index in (0, 1)] == [False, True]
    await clock.advance(COUNTED_ON_S)
    assert not donor.is_counted_on(HASHES[1])


@pytest.mark.parametrize(
    ("tamper", "is_held"),
    [
        (lambda messages: messages, True),
        (lambda _messages: [], False),
        (lambda messages: [bytes(m[:-1]) + b"\xff" for m in messages], False),
        (lambda _m: [shards_pb2.BytesChunk(refusal=1).SerializeToString()], False),
    ],
    ids=["honest", "nothing", "other bytes", "busy"],
)
async def test_a_claim_is_believed_when_the_right_bytes_come(scene: ShardScene, tamper, is_held):
    await scene.liar("claims", 2, tamper=lambda _call, messages: tamper(messages))
    async with await scene.crew() as crew:
        await until(lambda: crew.sightings.obtainable == 0b100, what="the claim")

        def is_right(offset: int, data: bytes) -> bool:
            return SHARDS[2][offset : offset + len(data)] == data

        assert await crew.is_to_be_had(name(2), is_right) is is_held
        assert not await crew.is_to_be_had(name(3), is_right), "nobody says to have it"
    assert not scene.memory.parts


async def test_a_few_bytes_before_the_end_do_not_keep_a_claim(
    scene: ShardScene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard_sightings, "DOUBT_AFTER", 1)
    monkeypatch.setattr(shard_sightings, "DOUBT_AFTER_S", 0.0)

    def tease(_call: int, messages: list[bytes]) -> list[bytes]:
        data = shards_pb2.BytesChunk.FromString(messages[0]).data
        return [shards_pb2.BytesChunk(data=data[:4096]).SerializeToString()]

    await scene.liar("teases", 2, tamper=tease)
    async with await scene.crew(2) as crew:
        await until(lambda: crew.bytes_fetched >= 4096, what="what it gave")
        await until(lambda: not crew.sightings.believable(scene.clock.monotonic()), what="doubt")
        assert crew.sightings.obtainable == 0b100, "it may be asked again"
    assert not scene.blamed, "to break off is no lie"


# -- decisions -------------------------------------------------------------------------


def test_a_claim_that_is_not_kept_counts_for_nothing_for_a_while():
    sightings, peer = ShardSightings(8), PeerAddress(node("p"), Endpoint("10.0.0.1", 1))
    sightings.choose([peer], 0.0, is_urgent=False)
    sightings.note(peer.node_id, b"\x07")
    for k in range(DOUBT_AFTER):
        assert sightings.believable(DOUBT_AFTER_S) == 0b111
        sightings.refused(peer.node_id, 0, k * DOUBT_AFTER_S)
    now = (DOUBT_AFTER - 1) * DOUBT_AFTER_S
    assert sightings.believable(now) == 0, "nothing at all came"
    assert sightings.obtainable == 0b111, "what it says is remembered, and may be asked for"
    sightings.gave(peer.node_id, 1)
    assert sightings.believable(now) == 0b110
    assert sightings.believable(now + DOUBT_S) == 0b111, "it may have changed its ways"
    sightings.gave(peer.node_id, 0)
    assert sightings.believable(now) == 0b111


def test_a_donor_that_is_busy_for_a_moment_is_believed():
    sightings, peer = ShardSightings(8), PeerAddress(node("p"), Endpoint("10.0.0.1", 1))
    sightings.choose([peer], 0.0, is_urgent=False)
    sightings.note(peer.node_id, b"\x01")
    for _ in range(100):
        sightings.refused(peer.node_id, 0, DOUBT_AFTER_S / 2)
    assert sightings.believable(DOUBT_AFTER_S / 2) == 1


@pytest.mark.parametrize(
    ("rate", "others", "is_left"),
    [
        (800.0, [None], True),
        (800.0, [], False),
        (800.0, [900.0], False),
        (FLOOR_BYTES_PER_S, [None, FLOOR_BYTES_PER_S * SLOW_FACTOR], False),
        (100 * KIB, [101 * KIB * SLOW_FACTOR], True),
        (100 * KIB, [None, 99 * KIB * SLOW_FACTOR], False),
    ],
)
def test_far_slower_is_what_is_below_the_floor_or_an_eighth_of_others(rate, others, is_left):
    assert is_far_slower(rate, others) is is_left


def test_a_rate_is_that_of_the_last_seconds():
    pace = ShardPace(100.0)
    pace.add(1000)
    assert pace.take_rate(100.0 + JUDGE_S / 2) is None
    assert pace.take_rate(100.0 + JUDGE_S) == 1000 / JUDGE_S
    assert pace.take_rate(100.0 + 2 * JUDGE_S) == 0
    assert pace.num_bytes == 1000


def test_a_slow_donor_is_asked_where_nobody_else_can_be_one_piece_at_a_time():
    present = [PeerAddress(node(f"p{k}"), Endpoint("10.0.0.1", 1 + k)) for k in range(3)]
    pool = DonorPool(lambda: present, seed=0)
    slow = (pool.pick(0.0), pool.pick(0.0), pool.pick(0.0))[-1]
    assert len(slow) == 3
    for donor in slow[:2]:
        pool.left(donor, 10.0, 1.0)
    assert pool.pick(1.0) == [slow[2]]
    present.remove(slow[2].address)
    (last,) = pool.pick(1.0)
    last.num_under_way = 1
    assert last in slow
    assert pool.pick(1.0) == []
    assert not pool.is_open(slow[0].node_id, 1.0)
    assert pool.is_open(slow[0].node_id, 1.0 + SLOW_S)


def test_donors_that_have_gone_take_no_place_from_new_ones_for_ever():
    present = list[PeerAddress]()
    pool = DonorPool(lambda: present, seed=0)
    for k in range(MAX_KNOWN + 10):
        present[:] = [PeerAddress(node(f"p{k}"), Endpoint("10.0.0.1", 1 + k))]
        (donor,) = pool.pick(float(k))
        assert donor.address == present[0]
    assert len(pool.donors) <= MAX_KNOWN
