"""What there is to train on, looked at without torch."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.corpus.manifest import Manifest, Shard
from neuroswarm.doctor.finding import Finding, Level
from neuroswarm.doctor.judge_data import judge_data, read_data

MANY = 10**9


def look(path: Path | None, max_bytes: int = MANY, *, may_fetch: bool = True) -> Finding:
    return judge_data(read_data(path, max_bytes, may_fetch=may_fetch), needed_bytes=100)


def test_the_standard_library_is_text():
    found = look(None)
    assert found.level is Level.OK
    assert found.said.endswith("files of the Python standard library")


def test_a_folder_of_texts_is_counted_without_what_is_none(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x" * 70)
    (tmp_path / "b").write_bytes(b"y" * 70)
    (tmp_path / "binary").write_bytes(b"\0" * 70)
    (tmp_path / "empty").touch()
    assert look(tmp_path).said == f"140 bytes of text in 2 files of {tmp_path}"
    assert look(tmp_path, max_bytes=120).said == f"120 bytes of text in 2 files of {tmp_path}"


def test_too_little_text_says_how_much_is_needed(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x")
    found = look(tmp_path)
    assert found.level is Level.FAIL
    assert found.said.startswith(f"too little text in {tmp_path}: 1 byte (at least 100")


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "no such file or folder: "), ("empty", "no text in ")]
)
def test_what_is_missing_or_empty_fails(tmp_path: Path, name: str, said: str):
    (tmp_path / "empty").mkdir()
    found = look(tmp_path / name)
    assert found.level is Level.FAIL
    assert found.said == f"{said}{tmp_path / name}"
    assert "--data" in found.fix


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_what_may_not_be_read_fails(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0)
    assert look(tmp_path).said == f"cannot read {tmp_path / 'a'}: Permission denied"


def make_shards(folder: Path) -> None:
    """A folder as `neuroswarm data prepare` makes it, of 90 and 10 bytes."""
    shards = []
    for name, data in (("train-00000.tokens", b"x" * 90), ("held-out-00000.tokens", b"y" * 10)):
        (folder / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        shards.append(Shard(name=name, num_tokens=len(data), sha256=sha256))
    manifest = Manifest(tokenizer="bytes", vocab_size=256, shards=shards)
    (folder / "manifest.json").write_bytes(manifest.encode())


def test_token_shards_are_looked_at_from_outside(tmp_path: Path):
    make_shards(tmp_path)
    found = look(tmp_path)
    assert found.level is Level.OK
    assert "neuroswarm data verify" in found.said


@pytest.mark.parametrize(
    ("name", "length", "said"),
    [
        ("train-00000.tokens", 89, "train-00000.tokens has 89 bytes"),
        ("train-00000.tokens", None, "none of its training shards is there"),
        ("held-out-00000.tokens", None, "none of its held-out shards is there"),
        ("manifest.json", 5, "is no manifest of token shards"),
    ],
)
def test_token_shards_that_a_node_would_refuse_fail(
    tmp_path: Path, name: str, length: int | None, said: str
):
    make_shards(tmp_path)
    path = tmp_path / name
    if length is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:length])
    found = look(tmp_path, may_fetch=False)
    assert found.level is Level.FAIL
    assert said in found.said
    if length is None:
        found = look(tmp_path)
        assert found.level is Level.OK
        assert found.said.endswith("; 1 shard to be fetched from peers")


def test_what_is_looked_at_needs_no_torch():
    code = "import sys, neuroswarm.doctor.judge_data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
