"""A corpus is described with its vocabulary, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from words import write_vocabulary

from neuroswarm.corpus.describing import describe
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.tokenizer import FileTokenizer
from neuroswarm.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("the swarm trains on and on " * 500)
    tokenizer = FileTokenizer(write_vocabulary(tmp_path))
    prepare([tmp_path / "text"], tmp_path / "out", tokenizer)
    return tmp_path / "out"


def test_the_vocabulary_comes_along_and_a_description_can_be_described(folder: Path):
    small, smaller = folder.with_name("small"), folder.with_name("smaller")
    assert describe(folder, small) == describe(small, smaller)
    for name in ("manifest.json", "tokenizer.json"):
        assert (smaller / name).read_bytes() == (folder / name).read_bytes()
    assert len(list(smaller.iterdir())) == 2


def test_a_wrong_or_missing_vocabulary_leaves_nothing(folder: Path):
    wrong, path = folder.with_name("wrong"), folder / "tokenizer.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(DataError, match="is not the vocabulary that made the shards"):
        describe(folder, wrong)
    path.unlink()
    with pytest.raises(DataError, match="the vocabulary that made the shards, is missing"):
        describe(folder, wrong)
    assert not wrong.exists()
    assert {p.name for p in folder.parent.iterdir()} == {"out", "text", "tokenizer.json"}


def test_a_disk_that_refuses_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuroswarm.corpus.describing.sync", refuse)
    with pytest.raises(OSError, match="No space left"):
        describe(folder, folder.with_name("small"))
    assert {p.name for p in folder.parent.iterdir()} == {"out", "text", "tokenizer.json"}
