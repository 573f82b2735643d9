"""A node keeps as many shards as it has room for, and changes them when the loss stands still."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from neuroswarm.checkpoint import complaint
from neuroswarm.clock import SystemClock
from neuroswarm.config.sections import DataConfig
from neuroswarm.corpus.describing import describe
from neuroswarm.corpus.holding import ShardHolding
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.shard_batches import ShardBatches
from neuroswarm.corpus.tokenizer import ByteTokenizer
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import Tokens
from neuroswarm.node import shard_keeper
from neuroswarm.node.shard_keeper import ShardKeeper
from neuroswarm.node.storage import Storage
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.speaker import Speaker
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import donor_pool, shard_crew, shard_sightings
from neuroswarm.transfer.shard_crew import ShardCrew
from neuroswarm.transfer.shard_donor import ShardDonor
from neuroswarm.v1 import shards_pb2, state_pb2
from neuroswarm.values import NodeId, PeerAddress

KB = 1000
ME = Speaker("asker").node_id
CFG = DataConfig(plateau_rounds=3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shard_crew, "LOOK_S", 0.01)
    monkeypatch.setattr(shard_sightings, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(shard_keeper, "LOOK_S", 0.02)
    monkeypatch.setattr(shard_keeper, "MEASURE_S", 0.0)
    monkeypatch.setattr(shard_keeper, "PROBE_S", 0.1)
    monkeypatch.setattr(complaint, "FIRST_PAUSE_S", 0.1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """9 shards of 10 kB and 1 of 5 kB to train on, 5 kB held out: 100 kB."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text").write_bytes((b"the swarm trains on and on\n" * 4000)[: 100 * KB])
    prepare([folder / "text"], folder / "whole", ByteTokenizer(), shard_bytes=10 * KB)
    return folder / "whole"


class Open:
    def may_give(self, _num_bytes: int) -> bool:
        return True

    async def take(self, _num_bytes: int) -> float:
        return 0.0


@dataclass(eq=False)
class Home:
    """A node's disk, with a folder that only describes the corpus unless told otherwise."""

    folder: Path
    whole: Path
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    donors: list[PeerAddress] = field(default_factory=list)
    num_begun: int = 0

    @property
    def given(self) -> Path:
        path = self.folder / "given"
        if not path.exists():
            describe(self.whole, path)
        return path

    @property
    def state(self) -> Path:
        (self.folder / "state").mkdir(exist_ok=True)
        return self.folder / "state"

    @property
    def own(self) -> Path:
        return self.state / "shards" / "corpus"

    async def donor(self, name: str, holding: ShardHolding | None = None) -> None:
        rpc = self.network.rpc(Speaker(name).node_id)
        held = holding or ShardHolding(self.whole, None)
        ShardDonor(rpc, held, CFG, clock=SystemClock(), uplink=Open())
        await rpc.start()
        self.donors.append(rpc.address)

    async def braggart(self, name: str) -> list[bytes]:
        """A peer that says to hold everything and is always busy; returns what it is asked for."""
        rpc = self.network.rpc(Speaker(name).node_id)
        asked: list[bytes] = []

        async def brag(_caller: NodeId, _data: bytes) -> bytes:
            return shards_pb2.HeldReply(is_known=True, held=b"\xff\xff").SerializeToString()

        async def refuse(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
            asked.append(data)
            yield shards_pb2.BytesChunk(refusal=state_pb2.REFUSAL_BUSY).SerializeToString()

        rpc.serve_unary("Shards/Held", brag)
        rpc.serve_stream("Shards/Bytes", refuse)
        await rpc.start()
        self.donors.append(rpc.address)
        return asked

    async def keeper(self, limit: int, *, reserve: int = 0) -> tuple[ShardKeeper, ShardBatches]:
        rpc = self.network.rpc(ME)
        holding = ShardHolding(self.given, self.own)
        batches = ShardBatches(holding, 65, make_sampler)
        blamed: list[object] = []
        crew = ShardCrew(
            rpc, holding, len(holding.shards), lambda: self.donors,
            blame=lambda _peer, error: blamed.append(error), clock=SystemClock(),
        )  # fmt: skip
        storage = Storage(
            limit,
            [self.state],
            shards=self.own,
            given_bytes=sum(map(holding.num_bytes, holding.given)),
            reserve_bytes=reserve,
        )
        keeper = ShardKeeper(batches, crew, storage, CFG, me=ME, clock=SystemClock())

        async def begin() -> None:
            batches.begin_round()
            self.num_begun += 1

        keeper.begin = begin
        if batches.is_enough(holding.held):
            batches.prepare(holding.held)
            batches.begin_round()
        await rpc.start()
        self.crew = crew
        return keeper, batches

    def used(self) -> int:
        """Bytes of shards on the disk, whole or not, and of everything else."""
        places = [*self.state.rglob("*"), *self.given.glob("*.tokens")]
        sizes = {path: path.stat().st_size for path in places if path.is_file()}
        described = ("manifest.json", ".manifest.json", "rotation.json", "rotation.json.tmp")
        return sum(size for path, size in sizes.items() if path.name not in described)


def make_sampler(tokens: Tokens) -> WindowSampler:
    return WindowSampler(tokens, context=64, batch_size=2, seed=0)


@pytest.fixture
def home(tmp_path: Path, whole: Path) -> Home:
    return Home(tmp_path, whole)


def held_out_of(batches: ShardBatches) -> list[int]:
    return [i for i, shard in enumerate(batches.holding.shards) if shard.is_held_out]


def level(keeper: ShardKeeper) -> None:
    """Six rounds in which the loss does not fall."""
    for _ in range(6):
        keeper.note_loss(2.0, 2.0)


async def test_a_node_with_room_fetches_everything(home: Home):
    await home.donor("whole")
    keeper, batches = await home.keeper(10_000 * KB)
    async with home.crew, keeper:
        await until(lambda: len(batches.holding.held) == 11, what="all shards")
        await until(lambda: not home.crew.is_looking, what="an end of asking")
    assert home.num_begun == 1, "later shards wait for the end of a round"
    assert batches.holding.given == frozenset()


async def test_no_more_is_fetched_than_there_is_room_for(home: Home):
    await home.donor("whole")
    limit, most = 46 * KB, 0
    (home.state / "checkpoint").write_bytes(bytes(10 * KB))
    keeper, batches = await home.keeper(limit)
    async with home.crew, keeper:

        def is_full() -> bool:
            nonlocal most
            most = max(most, home.used())
            return len(batches.holding.held) == 4

        await until(is_full, what="4 shards")
        await until(lambda: not home.crew.wanted and not home.crew.is_looking, what="an end")
    assert most <= limit
    assert home.used() in (40 * KB, 45 * KB), "with the short shard, or without"
    assert held_out_of(batches)[0] in batches.holding.held


async def test_space_that_checkpoints_will_take_is_left_free(home: Home):
    await home.donor("whole")
    keeper, batches = await home.keeper(100 * KB, reserve=80 * KB)
    async with home.crew, keeper:
        await until(lambda: batches.has_data, what="data")
        await until(lambda: not home.crew.wanted and not home.crew.is_looking, what="an end")
        assert home.used() <= 20 * KB


async def test_when_checkpoints_grow_shards_make_room(home: Home):
    await home.donor("whole")
    keeper, batches = await home.keeper(100 * KB)
    async with home.crew, keeper:
        await until(lambda: len(batches.holding.held) == 11, what="all shards")
        (home.state / "checkpoint").write_bytes(bytes(50 * KB))

        def has_room() -> bool:
            batches.begin_round()
            return home.used() <= 100 * KB

        await until(has_room, what="room")
        assert batches.has_data
        (home.state / "checkpoint").write_bytes(bytes(200 * KB))
        await until(lambda: [batches.begin_round(), len(batches.holding.held)][1] == 2, what="2")
        batches.train(0)


async def test_when_the_loss_stands_still_shards_are_changed_one_by_one(home: Home):
    await home.donor("whole")
    limit = 45 * KB
    keeper, batches = await home.keeper(limit)
    async with home.crew, keeper:
        await until(lambda: home.used() > 34 * KB and not home.crew.is_looking, what="a full room")
        batches.begin_round()
        before = batches.holding.fetched
        for loss in (2.0, 1.9, 1.8, 1.7, 1.6, 1.5):
            keeper.note_loss(loss, loss)
        assert keeper.rotation == 0
        level(keeper)
        assert keeper.rotation == 1
        fewest, most = len(before), 0

        def is_over() -> bool:
            nonlocal fewest, most
            batches.begin_round()
            fewest = min(fewest, len(batches.in_use))
            most = max(most, home.used())
            batches.train(0)
            batches.held_out(0, 1)
            return not home.crew.is_looking and batches.in_use == batches.holding.held

        await until(lambda: home.crew.is_looking, what="the change")
        await until(is_over, what="an end")
        after = batches.holding.fetched
        assert after != before
        assert fewest >= len(before) - 2, "one by one"
        assert most <= limit
        level(keeper)
        assert keeper.rotation == 2, "again, once the last change is over"
        await until(lambda: (home.own / "rotation.json").read_bytes() == b'{"rotation": 2}')
    keeper, again = await home.keeper(limit)
    assert again.holding.fetched, "what was fetched outlives a restart"
    async with home.crew, keeper:
        assert keeper.rotation == 2


async def test_where_everything_fits_nothing_is_changed(home: Home):
    await home.donor("whole")
    keeper, batches = await home.keeper(10_000 * KB)
    async with home.crew, keeper:
        await until(lambda: len(batches.holding.held) == 11, what="all shards")
        level(keeper)
        assert keeper.rotation == 0


async def test_a_shard_that_nobody_else_holds_stays(home: Home, tmp_path: Path):
    """The whole corpus is gone: what is left of it elsewhere is one other shard."""
    await home.donor("whole")
    keeper, batches = await home.keeper(26 * KB)
    async with home.crew, keeper:
        await until(lambda: not home.crew.is_looking and batches.has_data, what="a full room")
        batches.begin_round()
        before = batches.holding.fetched
        missing = next(i for i in range(batches.holding.num_train) if i not in before)
        home.network.kill(Speaker("whole").node_id)
        home.donors.clear()
        little = tmp_path / "little"
        describe(home.whole, little)
        shard = batches.holding.shards[missing].name
        (little / shard).write_bytes((home.whole / shard).read_bytes())
        await home.donor("little", ShardHolding(little, None))
        level(keeper)
        await until(lambda: home.crew.is_looking, what="a look around")
        await until(lambda: home.crew.sightings.obtainable == 1 << missing, what="sightings")

        def is_wanted() -> bool:
            level(keeper)
            return keeper.get_status()["wanted"] == 1

        await until(is_wanted, what="a rotation that ranks it before those that are here")
        looks = home.crew.num_looks
        await until(lambda: home.crew.num_looks > looks + 10, what="time to do wrong")
        batches.begin_round()
        await until(lambda: home.crew.num_looks > looks + 20, what="time to do wrong")
        assert batches.holding.fetched == before


async def test_what_the_user_prepared_is_counted_and_never_touched(home: Home):
    names = ["train-00000.tokens", "train-00001.tokens", "held-out-00000.tokens"]
    for name in names:
        (home.given / name).write_bytes((home.whole / name).read_bytes())
    await home.donor("whole")
    keeper, batches = await home.keeper(47 * KB)
    async with home.crew, keeper:
        await until(lambda: bool(batches.holding.fetched), what="a shard")
        await until(lambda: not home.crew.is_looking, what="a full room")
        batches.begin_round()
        assert home.used() <= 47 * KB
        level(keeper)
        await until(lambda: keeper.rotation == 1 and home.crew.is_looking, what="the change")

        def is_over() -> bool:
            batches.begin_round()
            return not home.crew.is_looking

        await until(is_over, what="an end")
        assert {path.name for path in home.given.glob("*.tokens")} == set(names)
        assert len(batches.holding.given) == 3


async def test_a_disk_that_refuses_is_told_once_and_tried_again(
    home: Home, caplog: pytest.LogCaptureFixture
):
    await home.donor("whole")
    (home.own / "manifest.json").mkdir(parents=True)  # where a file should be
    keeper, batches = await home.keeper(1000 * KB)
    with caplog.at_level(logging.WARNING):
        async with home.crew, keeper:
            await until(lambda: bool(keeper.get_status()["is_failing"]), what="the failure")
            (home.own / "manifest.json").rmdir()
            await until(lambda: batches.has_data, what="data after all")
            await until(lambda: not keeper.get_status()["is_failing"], what="an end of the failure")
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "cannot" in told[0].message
    assert "training goes on; will try again" in told[0].message


async def test_no_room_for_any_training_is_said(home: Home, caplog: pytest.LogCaptureFixture):
    await home.donor("whole")
    with caplog.at_level(logging.WARNING):
        keeper, batches = await home.keeper(8 * KB)
        async with home.crew, keeper:
            await until(lambda: "no room for a shard to train on" in caplog.text, what="the word")
            await until(lambda: len(batches.holding.held) == 1, what="what fits")
            assert home.used() <= 8 * KB
            assert not batches.has_data


async def test_a_status_says_how_far_it_is(home: Home):
    keeper, batches = await home.keeper(1000 * KB)
    async with home.crew, keeper:
        await until(lambda: home.crew.is_looking, what="a look")
        status = keeper.get_status()
        assert (status["of"], status["held"], status["holders"]) == (11, 0, 0)
        await home.donor("whole")
        await until(lambda: keeper.get_status()["held"] == 11, what="all shards")
        await until(lambda: keeper.get_status()["wanted"] == 0, what="nothing to be wanted")
        status = keeper.get_status()
        assert status["bytes_fetched_total"] == status["held_bytes"] == 100 * KB
        assert (status["fetching"], status["rotation"]) == ([], 0)
        assert batches.has_data


async def test_a_claim_that_nobody_keeps_moves_no_shard_and_blocks_no_change(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Somebody says to hold everything, and gives nothing; then others hold some of it."""
    monkeypatch.setattr(shard_sightings, "DOUBT_AFTER_S", 0.0)
    monkeypatch.setattr(donor_pool, "BUSY_S", (0.01, 0.02))
    await home.donor("whole")
    keeper, batches = await home.keeper(26 * KB)
    async with home.crew, keeper:
        await until(lambda: not home.crew.is_looking and batches.has_data, what="a full room")
        batches.begin_round()
        before = batches.holding.fetched
        home.network.kill(Speaker("whole").node_id)
        home.donors.clear()
        asked = await home.braggart("braggart")
        level(keeper)
        await until(lambda: len(asked) >= 3, what="questions for what it says to hold")
        batches.begin_round()
        looks = home.crew.num_looks
        await until(lambda: home.crew.num_looks > looks + 10, what="time to do wrong")
        assert batches.holding.fetched == before
        await home.donor("second whole", ShardHolding(home.whole, None))

        def is_changed() -> bool:
            level(keeper)
            batches.begin_round()
            return batches.holding.fetched != before

        await until(is_changed, what="a change of shards")
