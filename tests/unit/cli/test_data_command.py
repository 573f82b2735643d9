"""`neuroswarm data`: shards are made, told of and checked, and errors say what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run

TEXT = "the swarm trains on\n" * 1000


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def prepare(text: Path, out: Path, *more: str) -> int:
    return run(["data", "prepare", str(text), "--out", str(out), *more])


def test_shards_are_made_and_told_of(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert prepare(text, out) == ExitCode.OK
    told = capsys.readouterr().out
    assert f"{out}: 20,000 tokens in 2 shards\nheld out: 1,000 tokens\n" in told
    assert "tokenizer: bytes, 256 tokens\n" in told
    assert run(["data", "show", str(out)]) == ExitCode.OK
    assert capsys.readouterr().out == told
    assert run(["data", "verify", str(out)]) == ExitCode.OK
    assert capsys.readouterr().out == "sound: 2 shards\n"


def test_damage_and_absence_are_told_apart(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert prepare(text, out) == ExitCode.OK
    (out / "held-out-00000.tokens").unlink()
    assert run(["data", "verify", str(out)]) == ExitCode.CONFIG
    told = capsys.readouterr()
    assert "sound: 1 shard, 1 missing" in told.out
    assert "none of its held-out shards is there" in told.err
    (out / "train-00000.tokens").write_bytes(b"x" * 19_000)
    assert run(["data", "verify", str(out)]) == ExitCode.IO
    assert "its bytes are not those that were prepared" in capsys.readouterr().err


def test_files_left_out_are_told(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "image").write_bytes(b"\x89PNG\0")
    text.rename(folder / "text.txt")
    assert prepare(folder, tmp_path / "out") == ExitCode.OK
    assert "left out, empty or no text: 1 file" in capsys.readouterr().out


def test_a_corpus_is_described_for_those_who_fetch_it(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    text.write_text(TEXT * 200)
    assert prepare(text, tmp_path / "out", "--shard-mb", "1") == ExitCode.OK
    shown = capsys.readouterr().out
    small = tmp_path / "small"
    assert run(["data", "describe", str(tmp_path / "out"), "--to", str(small)]) == ExitCode.OK
    told = capsys.readouterr().out
    assert f"{small}: describes 4,000,000 tokens in 5 shards\n" in told
    assert [path.name for path in small.iterdir()] == ["manifest.json"]
    assert shown.splitlines()[-1] == told.splitlines()[-1], "the same id"
    (small / "train-00001.tokens").write_bytes((tmp_path / "out/train-00001.tokens").read_bytes())
    assert run(["data", "show", str(small)]) == ExitCode.OK
    assert capsys.readouterr().out.endswith(
        "here: 1 shard: train-00001\n"
        "missing here: 4 shards: train-00000, train-00002 to train-00003, held-out-00000\n"
        "a node fetches missing ones from its peers (data.fetch)\n"
    )
    assert run(["data", "verify", str(small)]) == ExitCode.CONFIG
    assert "sound: 1 shard, 4 missing\nhere: 1 shard: train-00001\n" in capsys.readouterr().out
    assert run(["data", "describe", str(small), "--to", str(small)]) == ExitCode.CONFIG
    assert f"{small} exists and is not empty: give a new folder (--to)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.txt"], "no such file or folder"),
        (["text.txt", "--tokenizer", "none.json"], "cannot read the vocabulary none.json"),
        (["text.txt", "--separator", "<s>"], "'<s>' is 3 bytes (one, with the byte tokenizer)"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, text: Path, arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["data", "prepare", *arguments, "--out", "out"]) == ExitCode.CONFIG
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_folder_that_holds_no_shards_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["data", "show", str(tmp_path)]) == ExitCode.CONFIG
    assert f"cannot read {tmp_path}/manifest.json: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_ended_in_the_middle_leaves_nothing(tmp_path: Path, number: signal.Signals):
    fifo = tmp_path / "text"
    os.mkfifo(fifo)
    out = tmp_path / "place" / "out"
    command = [sys.executable, "-m", "neuroswarm", "data", "prepare", str(fifo), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    with fifo.open("wb") as feed:  # returns once it is read from
        feed.write(b"the swarm trains on\n" * 200_000)
        feed.flush()
        assert list(out.parent.iterdir()), "it is at work"
        process.send_signal(number)
    # The end of the text wakes the reader, should another thread have taken the signal.
    assert process.wait(60) == 128 + number
    assert list(out.parent.iterdir()) == []
