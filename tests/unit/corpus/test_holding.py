"""Shards that are fetched are whole and right, or not there; the user's are never touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from neuroswarm.corpus.describing import describe
from neuroswarm.corpus.holding import UNFINISHED, ShardHolding, find_corpus
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.shard_batches import ShardBatches
from neuroswarm.corpus.shards import ShardFolder
from neuroswarm.corpus.tokenizer import ByteTokenizer
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import Tokens
from neuroswarm.errors import DataError

TEXT = b"the swarm trains on and on\n" * 4000


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "text").write_bytes(TEXT)
    prepare([tmp_path / "text"], tmp_path / "whole", ByteTokenizer(), shard_bytes=20_000)
    return tmp_path / "whole"


@pytest.fixture
def empty(whole: Path) -> ShardHolding:
    """Of a folder without any shard."""
    describe(whole, whole.with_name("empty"))
    own = find_corpus(whole, whole.with_name("state") / "shards")
    return ShardHolding(whole.with_name("empty"), own)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def land(holding: ShardHolding, whole: Path, index: int) -> bool:
    data = (whole / holding.shards[index].name).read_bytes()
    holding.write(index, 0, data[:5000])
    holding.write(index, 5000, data[5000:])
    return holding.finish(index)


def test_what_is_fetched_is_a_folder_of_shards_by_itself(whole: Path, empty: ShardHolding):
    last = len(empty.shards) - 1
    assert empty.held == frozenset()
    assert land(empty, whole, 0)
    assert land(empty, whole, last)
    assert empty.held == empty.fetched == {0, last}
    assert empty.held_bits() == bytes([0b0100_0001])
    assert empty.own is not None
    found = ShardFolder(empty.own)
    assert found.manifest == ShardFolder(whole).manifest
    assert {shard.name for shard in found.held} == {empty.shards[i].name for i in (0, last)}
    assert list(found.verify()) == []
    assert contents(empty.path).keys() == {"manifest.json"}, "the user's folder is as it was"


def test_wrong_bytes_are_deleted_and_never_held(whole: Path, empty: ShardHolding):
    data = bytearray((whole / empty.shards[1].name).read_bytes())
    data[777] ^= 1
    empty.write(1, 0, bytes(data))
    assert not empty.finish(1)
    assert empty.received(1) == 0
    assert empty.held == frozenset()
    assert land(empty, whole, 1)


def test_a_restart_finds_what_is_whole_and_goes_on_with_the_rest(whole: Path, empty: ShardHolding):
    land(empty, whole, 0)
    empty.write(2, 0, (whole / empty.shards[2].name).read_bytes()[:7000])
    again = ShardHolding(empty.path, empty.own)
    assert again.fetched == {0}
    assert (again.received(1), again.received(2)) == (0, 7000)
    assert again.unfinished() == {2}
    again.write(2, 7000, (whole / empty.shards[2].name).read_bytes()[7000:])
    assert again.finish(2)
    again.discard(1)
    assert again.unfinished() == frozenset()


def test_a_fetched_shard_cut_short_is_fetched_again(whole: Path, empty: ShardHolding):
    land(empty, whole, 0)
    assert empty.own is not None
    path = empty.own / empty.shards[0].name
    path.write_bytes(path.read_bytes()[:-1])
    assert ShardHolding(empty.path, empty.own).fetched == frozenset()
    assert not path.exists()


def test_only_what_was_fetched_can_be_deleted(whole: Path):
    (whole / "train-00003.tokens").rename(whole / "away")
    before = contents(whole)
    holding = ShardHolding(whole, whole.with_name("own"))
    (whole / "away").rename(whole / "train-00003.tokens")
    land(holding, whole, 3)
    (whole / "train-00003.tokens").rename(whole / "away")
    with pytest.raises(ValueError, match="was not fetched by this node"):
        holding.remove(0)
    holding.remove(3)
    assert holding.held == holding.given
    assert contents(whole) == before
    assert contents(whole.with_name("own")).keys() == {"manifest.json"}


def test_a_shard_that_rotted_is_not_given_to_others(whole: Path):
    holding = ShardHolding(whole, None)
    path = whole / holding.shards[0].name
    assert holding.find(holding.hash_of(0)) == path
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    assert holding.find(holding.hash_of(0)) is None
    assert holding.find(holding.hash_of(1)) == whole / holding.shards[1].name
    assert holding.find(bytes(32)) is None
    path.unlink()
    assert holding.find(holding.hash_of(0)) is None


def test_a_disk_that_refuses_is_named(
    whole: Path, empty: ShardHolding, monkeypatch: pytest.MonkeyPatch
):
    assert empty.own is not None
    empty.own.parent.mkdir(parents=True)
    empty.own.touch()
    with pytest.raises(DataError, match=r"cannot write .*unfinished-train-00000"):
        empty.write(0, 0, b"x")
    empty.own.unlink()
    land(empty, whole, 1)

    def refuse(_path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    empty.write(0, 0, (whole / empty.shards[0].name).read_bytes())
    monkeypatch.setattr("neuroswarm.corpus.holding.sync", refuse)
    with pytest.raises(DataError, match="No space left on device"):
        empty.finish(0)
    assert empty.held == {1}
    assert empty.received(0) == empty.num_bytes(0), "nothing is lost: it is tried again"
    assert (empty.own / f"{UNFINISHED}{empty.shards[0].name}").exists()


def test_a_shard_that_vanished_is_named_when_it_is_to_be_used(whole: Path):
    holding = ShardHolding(whole, None)
    (whole / "train-00002.tokens").unlink()
    with pytest.raises(DataError, match=r"cannot read .*train-00002.tokens: No such file"):
        make_batches(holding).prepare(holding.held)
    (whole / "train-00002.tokens").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*train-00002.tokens"):
        make_batches(holding).prepare(holding.held)


def make_batches(holding: ShardHolding) -> ShardBatches:
    def make_sampler(tokens: Tokens) -> WindowSampler:
        return WindowSampler(tokens, context=16, batch_size=2, seed=0)

    return ShardBatches(holding, 17, make_sampler)


def test_shards_come_into_use_between_two_rounds_only(whole: Path, empty: ShardHolding):
    batches, last = make_batches(empty), len(empty.shards) - 1
    assert not batches.has_data
    land(empty, whole, 0)
    with pytest.raises(DataError, match="not one shard to train on and one held out"):
        batches.prepare(empty.held)
    land(empty, whole, last)
    batches.prepare(empty.held)
    assert not batches.has_data
    batches.begin_round()
    assert batches.has_data
    before = batches.train(5)[0]
    land(empty, whole, 1)
    batches.prepare({1, last})
    assert batches.in_use == {0, 1, last}
    assert batches.train(5)[0].equal(before)
    batches.begin_round()
    assert batches.in_use == {1, last}
    assert not batches.train(5)[0].equal(before)


def test_a_corpus_without_a_window_is_refused_at_once(whole: Path):
    with pytest.raises(DataError, match="no shard held out has 6000 tokens"):
        ShardBatches(ShardHolding(whole, None), 6000, make_batches)  # type: ignore[arg-type]
