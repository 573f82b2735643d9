"""A folder of shards says what is wrong with it; missing shards are no fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from words import write_vocabulary

from neuroswarm.corpus.manifest import MANIFEST, VOCABULARY, is_shard_folder
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.shards import ShardFolder
from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer
from neuroswarm.errors import DataError

TEXT = b"the swarm trains on and on\n" * 4000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_bytes(TEXT)
    prepare([tmp_path / "text"], tmp_path / "out", ByteTokenizer(), shard_bytes=20_000)
    return tmp_path / "out"


def test_a_part_of_the_shards_is_enough(folder: Path):
    assert is_shard_folder(folder)
    whole = ShardFolder(folder).open_tokens().num_tokens
    (folder / "train-00002.tokens").unlink()
    found = ShardFolder(folder)
    assert found.open_tokens().num_tokens == whole - 20_000
    assert len(found.held) == len(found.manifest.shards) - 1
    assert list(found.verify()) == []


@pytest.mark.parametrize(("kind", "what"), [("train", "training"), ("held-out", "held-out")])
def test_without_a_shard_of_each_kind_it_says_which_is_missing(folder: Path, kind: str, what: str):
    for path in folder.glob(f"{kind}-*"):
        path.unlink()
    with pytest.raises(DataError, match=f"none of its {what} shards is there"):
        ShardFolder(folder).open_tokens()


def test_a_shard_cut_short_is_refused_when_it_is_opened(folder: Path):
    path = folder / "train-00001.tokens"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train-00001.tokens has 19999 bytes .*says 20000"):
        ShardFolder(folder).open_tokens()
    assert dict(ShardFolder(folder).verify()) == {
        "train-00001.tokens": "19999 bytes instead of 20000"
    }


def test_one_changed_bit_is_found(folder: Path):
    path = folder / "held-out-00000.tokens"
    content = bytearray(path.read_bytes())
    content[17] ^= 1
    path.write_bytes(content)
    assert dict(ShardFolder(folder).verify()) == {
        path.name: "its bytes are not those that were prepared"
    }


def changed(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "neuroswarm tokens 9"}, "format"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 2**31 + 1}, "vocab_size"),
        ({"shards": []}, "shards"),
        ({"shards": [{"name": "../x", "num_tokens": 1, "sha256": "0" * 64}]}, "shards.0.name"),
        ({"more": 1}, "more"),
        ({"tokenizer": "words"}, "tokenizer"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_what_is_wrong_in_a_manifest_is_named(folder: Path, changes: dict[str, Any], message: str):
    changed(folder, **changes)
    with pytest.raises(DataError, match=f"no manifest of token shards: {message}"):
        ShardFolder(folder)


def test_two_shards_of_one_name_are_refused(folder: Path):
    shard = ShardFolder(folder).manifest.shards[0].model_dump()
    changed(folder, shards=[shard, shard])
    with pytest.raises(DataError, match="two shards of one name"):
        ShardFolder(folder)


def test_what_is_no_json_is_named(folder: Path):
    (folder / MANIFEST).write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="no manifest of token shards"):
        ShardFolder(folder)


def test_another_vocabulary_than_the_one_that_made_the_shards_is_refused(tmp_path: Path):
    (tmp_path / "text").write_bytes(TEXT)
    tokenizer = FileTokenizer(write_vocabulary(tmp_path))
    prepare([tmp_path / "text"], tmp_path / "out", tokenizer)
    assert ShardFolder(tmp_path / "out").make_tokenizer().decode([3, 4]) == "swarm trains"
    (tmp_path / "out" / VOCABULARY).write_text(tokenizer.file.decode() + " ")
    with pytest.raises(DataError, match="is not the vocabulary that made the shards"):
        ShardFolder(tmp_path / "out").make_tokenizer()
    (name, why), *_ = ShardFolder(tmp_path / "out").verify()
    assert (name, why) == (VOCABULARY, "it is not the vocabulary that made the shards")
    (tmp_path / "out" / VOCABULARY).unlink()
    (name, why), *_ = ShardFolder(tmp_path / "out").verify()
    assert (name, why) == (VOCABULARY, "the vocabulary that made the shards is missing")


@pytest.mark.parametrize("change", ["cut", "grown", "deleted"])
def test_a_shard_that_changes_while_it_is_read_is_an_error_and_no_dead_process(
    folder: Path, change: str
):
    path = folder / "train-00001.tokens"
    content = path.read_bytes()
    tokens = ShardFolder(folder).open_tokens()
    starts = [20_010, 39_000]
    assert tokens.windows(starts, 900)[1].tolist() == list(content[19_000:19_900])
    if change == "deleted":
        path.unlink()
    else:
        path.write_bytes(content[:500] if change == "cut" else content + b"x")
    what = "cannot read" if change == "deleted" else "was changed while it is trained on"
    for start in starts:
        with pytest.raises(DataError, match=what):
            tokens.windows([start], 900)
    path.write_bytes(content)
    assert tokens.windows(starts, 900)[0].tolist() == list(content[10:910]), "it is back"
