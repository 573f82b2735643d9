"""Shards hold every token once, the same on every machine, or nothing is left of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from words import write_vocabulary

from neuroswarm.corpus.preparing import PIECE_BYTES, Progress, prepare
from neuroswarm.corpus.shards import ShardFolder
from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer
from neuroswarm.data.tokens import split_tokens
from neuroswarm.errors import DataError

TEXT = b"".join(b"line %d of the text\n" % i for i in range(4000))


def write(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def read_back(folder: Path, *, held_out: bool) -> bytes:
    found = ShardFolder(folder)
    shards = [shard for shard in found.manifest.shards if shard.is_held_out is held_out]
    return b"".join((folder / shard.name).read_bytes() for shard in shards)


def test_every_token_is_in_one_shard(tmp_path: Path):
    source = write(tmp_path / "text", a=TEXT)
    manifest = prepare([source], tmp_path / "out", ByteTokenizer(), shard_bytes=10_000)
    held = split_tokens(len(TEXT), 64).held_out
    ends, starts = [0, *(end for _, end in held)], [*(start for start, _ in held), len(TEXT)]
    for held_out, ranges in ((False, zip(ends, starts, strict=True)), (True, held)):
        expected = b"".join(TEXT[start:end] for start, end in ranges)
        assert read_back(tmp_path / "out", held_out=held_out) == expected
    assert manifest.num_tokens == len(TEXT)
    assert max(shard.num_tokens for shard in manifest.shards) < 10_000 + 64
    assert len(manifest.shards) == 10
    assert list(ShardFolder(tmp_path / "out").verify()) == []


def test_the_same_text_makes_the_same_shards(tmp_path: Path):
    source = write(tmp_path / "text", b=TEXT[:1000], a=TEXT)
    ids = {prepare([source], tmp_path / name, ByteTokenizer()).id for name in ("one", "two")}
    assert len(ids) == 1
    other = prepare([source / "b", source / "a"], tmp_path / "three", ByteTokenizer())
    assert other.id not in ids


def test_a_text_longer_than_a_piece_is_cut_after_a_line(tmp_path: Path):
    line = b"the swarm trains on and on\n"
    source = write(tmp_path / "text", a=line * (2 * PIECE_BYTES // len(line) + 9))
    told: list[int] = []
    tokenizer = FileTokenizer(write_vocabulary(tmp_path))
    manifest = prepare(
        [source], tmp_path / "out", tokenizer, on_progress=lambda p: told.append(p.num_tokens)
    )
    assert manifest.num_tokens == 6 * (source / "a").stat().st_size // len(line)
    assert len(told) == 3
    assert ShardFolder(tmp_path / "out").make_tokenizer().name == tokenizer.name
    assert b"\0" not in read_back(tmp_path / "out", held_out=False), "no word was cut in two"


def test_a_separator_follows_every_file(tmp_path: Path):
    source = write(tmp_path / "text", a=b"the swarm " * 200, b=b"trains on " * 200)
    tokenizer = FileTokenizer(write_vocabulary(tmp_path))
    prepare([source], tmp_path / "out", tokenizer, separator=tokenizer.find("<|end|>"))
    found = read_back(tmp_path / "out", held_out=False) + read_back(tmp_path / "out", held_out=True)
    assert found.count(1) == 2
    assert len(found) == 802


@pytest.mark.parametrize("num_words", [300, 70_000])
def test_wide_ids_are_little_endian(tmp_path: Path, num_words: int):
    source = write(tmp_path / "text", a=f"w{num_words - 8} the ".encode() * 500)
    tokenizer = FileTokenizer(write_vocabulary(tmp_path, num_words))
    prepare([source], tmp_path / "out", tokenizer)
    tokens = ShardFolder(tmp_path / "out").open_tokens()
    assert tokens.windows([0], 4).tolist() == [[num_words - 1, 2, num_words - 1, 2]]
    width = 2 if num_words < 2**16 else 4
    first = read_back(tmp_path / "out", held_out=False)[:width]
    assert int.from_bytes(first, "little") == num_words - 1


def test_binary_and_empty_files_are_left_out_and_counted(tmp_path: Path):
    source = write(tmp_path / "text", a=TEXT, b=b"\x7fELF\0\1", c=b"")
    seen: list[Progress] = []
    manifest = prepare([source], tmp_path / "out", ByteTokenizer(), on_progress=seen.append)
    assert manifest.num_tokens == len(TEXT)
    assert (seen[-1].num_files, seen[-1].num_skipped) == (1, 2)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "no text"), (b"short", "too little text: 5 tokens")]
)
def test_without_text_nothing_is_left(tmp_path: Path, content: bytes, message: str):
    source = write(tmp_path / "text", a=content)
    with pytest.raises(DataError, match=message):
        prepare([source], tmp_path / "place" / "out", ByteTokenizer())
    assert list((tmp_path / "place").iterdir()) == []


def test_a_folder_in_use_is_not_touched(tmp_path: Path):
    source = write(tmp_path / "text", a=TEXT)
    out = write(tmp_path / "out", mine=b"mine")
    with pytest.raises(DataError, match="exists and is not empty"):
        prepare([source], out, ByteTokenizer())
    assert [path.name for path in out.iterdir()] == ["mine"]
    (out / "mine").unlink()
    prepare([source], out, ByteTokenizer())
    assert ShardFolder(out).open_tokens().num_tokens == len(TEXT)


class FullDisk(ByteTokenizer):
    """The disk is full at the second piece."""

    def __init__(self) -> None:
        self.num_pieces = 0

    def encode(self, text: bytes) -> torch.Tensor:
        self.num_pieces += 1
        if self.num_pieces == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().encode(text)


def test_of_what_could_not_be_finished_nothing_is_left(tmp_path: Path):
    source = write(tmp_path / "text", a=TEXT, b=TEXT)
    tokenizer: Tokenizer = FullDisk()
    with pytest.raises(OSError, match="No space left") as caught:
        prepare([source], tmp_path / "place" / "out", tokenizer)
    assert caught.value.filename == str(tmp_path / "place" / "out")
    assert list((tmp_path / "place").iterdir()) == []
