"""Contributions of others survive on disk until a checkpoint covers their round."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroswarm.checkpoint.held import MAX_ROUNDS, Held, HeldLog
from neuroswarm.errors import CheckpointError
from neuroswarm.testing.speaker import Speaker

BASE = b"b" * 32
NAMES = ("anna", "bert", "carl")


def contributions(*names: str) -> list[Held]:
    speakers = [(Speaker(name, round_=3, base=BASE), name.encode() * 9) for name in names]
    return [(speaker.contribution(payload), payload) for speaker, payload in speakers]


def test_headers_and_payloads_come_back(tmp_path: Path):
    held = contributions(*NAMES)
    num_bytes = HeldLog(tmp_path / "held").record(3, BASE, held)
    assert HeldLog(tmp_path / "held").recall(3, BASE) == held
    (path,) = (tmp_path / "held").iterdir()
    assert path.stat().st_size == num_bytes


@pytest.mark.parametrize(("round_", "base"), [(4, BASE), (3, b"c" * 32)])
def test_another_round_has_nothing(tmp_path: Path, round_: int, base: bytes):
    log = HeldLog(tmp_path)
    log.record(3, BASE, contributions("anna"))
    assert log.recall(round_, base) == []


def test_a_file_that_is_cut_short_gives_what_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    log, held = HeldLog(tmp_path), contributions(*NAMES)
    log.record(3, BASE, held)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert log.recall(3, BASE) == held[: len(log.recall(3, BASE))]
    assert "are damaged" in caplog.text


def test_a_flipped_bit_in_a_header_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = HeldLog(tmp_path)
    log.record(3, BASE, contributions("anna"))
    (path,) = tmp_path.iterdir()
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(raw)
    assert log.recall(3, BASE) == []
    assert "are damaged" in caplog.text


def test_what_a_checkpoint_covers_is_forgotten(tmp_path: Path):
    log = HeldLog(tmp_path)
    for round_ in (3, 4):
        log.record(round_, BASE, contributions("anna"))
    (tmp_path / "4-00.held.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("left alone")
    log.forget_before(4)
    assert log.recall(3, BASE) == []
    assert log.recall(4, BASE) == contributions("anna")
    assert len(list(tmp_path.iterdir())) == 2


def test_without_checkpoints_the_oldest_go_first(tmp_path: Path):
    log = HeldLog(tmp_path)
    for round_ in (3, 3 + MAX_ROUNDS, 4 + MAX_ROUNDS):
        log.record(round_, BASE, contributions("anna"))
    assert [len(log.recall(3 + past, BASE)) for past in (0, MAX_ROUNDS, 1 + MAX_ROUNDS)] == [
        0,
        1,
        1,
    ]


def test_a_short_budget_keeps_them_from_the_disk(tmp_path: Path):
    log, held = HeldLog(tmp_path), contributions("anna")
    asked = []
    log.has_room = lambda num_bytes: bool(asked.append(num_bytes))
    assert log.record(3, BASE, held) == 0
    assert log.recall(3, BASE) == []
    assert (asked, log.bytes_written) == ([len(held[0][1])], 0)


def test_a_disk_that_refuses_is_told(tmp_path: Path):
    log = HeldLog(tmp_path / "held")
    (tmp_path / "held").rmdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        log.record(3, BASE, contributions("anna"))


def test_forgetting_leaves_a_file_alone_that_is_being_written(tmp_path: Path):
    log, began, may_end = HeldLog(tmp_path), threading.Event(), threading.Event()

    class Slow(list[Held]):
        def __iter__(self) -> Iterator[Held]:
            for held in super().__iter__():
                yield held
                if may_write.is_set():
                    began.set()
                    may_end.wait(5)

    may_write = threading.Event()

    def has_room(_num_bytes: int) -> bool:
        may_write.set()
        return True

    log.has_room = has_room
    writing = threading.Thread(target=log.record, args=(3, BASE, Slow(contributions(*NAMES))))
    writing.start()
    began.wait(5)
    forgetting = threading.Thread(target=log.forget_before, args=(3,))
    forgetting.start()
    may_end.set()
    writing.join()
    forgetting.join()
    assert log.recall(3, BASE) == contributions(*NAMES)
