"""What was signed is said again after a restart, and never something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.checkpoint.said import Said, SaidLog
from neuroswarm.errors import CheckpointError
from neuroswarm.testing.speaker import Speaker
from neuroswarm.wire.signed import Kind

BASE = b"b" * 32
ANNA = Speaker("anna", round_=3, base=BASE)
CONTRIBUTION = Said(ANNA.contribution(b"payload"), b"payload")
BALLOT = Said(ANNA.ballot([CONTRIBUTION.signed.id]))


def test_statements_come_back_with_their_payload_after_a_restart(tmp_path: Path):
    log = SaidLog(tmp_path / "said")
    log.record(3, BASE, CONTRIBUTION)
    log.record(3, BASE, BALLOT)
    again = SaidLog(tmp_path / "said").recall(3, BASE)
    assert again == {Kind.CONTRIBUTION: CONTRIBUTION, Kind.BALLOT: BALLOT}
    assert SaidLog(tmp_path / "said").recall(3, BASE) == again, "recalling keeps it"


@pytest.mark.parametrize(("round_", "base"), [(4, BASE), (33, BASE), (3, b"c" * 32)])
def test_what_is_about_another_round_is_dropped(tmp_path: Path, round_: int, base: bytes):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    assert log.recall(round_, base) == {}
    assert log.recall(3, BASE) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_a_statement_that_is_not_whole_is_dropped(
    tmp_path: Path, keep: int, caplog: pytest.LogCaptureFixture
):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    assert log.recall(3, BASE) == {}
    assert "damaged and dropped" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_statement_with_a_flipped_bit_is_dropped(tmp_path: Path):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    (path,) = tmp_path.iterdir()
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(raw)
    assert log.recall(3, BASE) == {}


def test_a_disk_that_refuses_is_told_so_that_nothing_is_sent(tmp_path: Path):
    log = SaidLog(tmp_path / "said")
    (tmp_path / "said").rmdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        log.record(3, BASE, BALLOT)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot create"):
        SaidLog(tmp_path / "file" / "said")
