"""What was signed is said again after a restart, and never something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.checkpoint.said import (
    KEPT_ROUNDS,
    MAX_WHOLE_ROUNDS,
    Recollection,
    Said,
    SaidLog,
)
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
    assert again == Recollection({Kind.CONTRIBUTION: CONTRIBUTION, Kind.BALLOT: BALLOT})
    assert SaidLog(tmp_path / "said").recall(3, BASE) == again, "recalling keeps it"


@pytest.mark.parametrize(("round_", "base"), [(4, BASE), (33, BASE), (3, b"c" * 32)])
def test_asking_about_another_round_finds_and_forgets_nothing(
    tmp_path: Path, round_: int, base: bytes
):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    assert log.recall(round_, base) == Recollection()
    assert log.recall(3, BASE) == Recollection({Kind.BALLOT: BALLOT})


@pytest.mark.parametrize("lag", [1, MAX_WHOLE_ROUNDS])
def test_all_that_was_said_since_the_last_checkpoint_is_kept(tmp_path: Path, lag: int):
    log = SaidLog(tmp_path)
    log.forget_before(3)
    log.record(3, BASE, CONTRIBUTION)
    log.record(3 + lag, BASE, Said(ANNA.about(3 + lag, BASE).ballot()))
    assert SaidLog(tmp_path).recall(3, BASE).said == {Kind.CONTRIBUTION: CONTRIBUTION}


@pytest.mark.parametrize(("round_", "base"), [(5, BASE), (4, b"c" * 32)])
def test_that_it_spoke_outlives_what_it_said(tmp_path: Path, round_: int, base: bytes):
    """The checkpoint may turn out damaged."""
    log = SaidLog(tmp_path)
    log.record(3, BASE, CONTRIBUTION)
    log.record(3, BASE, BALLOT)
    log.forget_before(4)
    log.record(round_, base, Said(ANNA.about(round_, base).ballot()))
    assert SaidLog(tmp_path).recall(3, BASE).lost == {Kind.CONTRIBUTION, Kind.BALLOT}
    assert sum(path.stat().st_size > 0 for path in tmp_path.iterdir()) == 1


def test_without_checkpoints_the_oldest_go_first(tmp_path: Path):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    late = 4 + MAX_WHOLE_ROUNDS
    log.record(late, BASE, Said(ANNA.about(late, BASE).ballot()))
    assert SaidLog(tmp_path).recall(3, BASE).lost == {Kind.BALLOT}


def test_the_round_spoken_in_is_kept_though_a_checkpoint_of_another_lineage_is_newer(
    tmp_path: Path,
):
    log = SaidLog(tmp_path)
    log.forget_before(9)
    log.record(3, BASE, CONTRIBUTION)
    log.record(3, BASE, BALLOT)
    assert set(SaidLog(tmp_path).recall(3, BASE).said) == {Kind.CONTRIBUTION, Kind.BALLOT}


def test_rounds_long_ago_and_halves_of_files_are_dropped(tmp_path: Path):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    (tmp_path / "3-00-ballot.said.tmp").write_bytes(b"half")
    log.record(4 + KEPT_ROUNDS, BASE, BALLOT)
    assert log.recall(3, BASE) == Recollection()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_a_statement_that_is_not_whole_any_more_is_lost_and_may_have_been_sent(
    tmp_path: Path, keep: int
):
    log = SaidLog(tmp_path)
    log.record(3, BASE, BALLOT)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    for _ in range(2):
        assert log.recall(3, BASE) == Recollection(lost=frozenset({Kind.BALLOT}))


def test_one_flipped_bit_anywhere_loses_the_statement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    log = SaidLog(tmp_path)
    log.record(3, BASE, Said(BALLOT.signed, b"amendments"))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(len(whole)):
        raw = bytearray(whole)
        raw[place] ^= 1
        path.write_bytes(raw)
        assert log.recall(3, BASE) == Recollection(lost=frozenset({Kind.BALLOT}))
    assert "is damaged" in caplog.text


def test_the_newest_round_spoken_in_is_known_by_kind(tmp_path: Path):
    log = SaidLog(tmp_path)
    assert log.newest_round(Kind.BALLOT) == -1
    log.record(3, BASE, CONTRIBUTION)
    log.forget_before(11)
    for round_ in (10, 9):
        log.record(round_, BASE, Said(ANNA.about(round_, BASE).ballot()))
    again = SaidLog(tmp_path)
    assert [again.newest_round(k) for k in (Kind.CONTRIBUTION, Kind.BALLOT)] == [3, 10]


def test_what_is_no_statement_is_left_alone(tmp_path: Path):
    log = SaidLog(tmp_path)
    for name in ("notes.txt", "x-y-ballot.said"):
        (tmp_path / name).write_text("")
    (tmp_path / "3-dir-ballot.said").mkdir()
    log.record(3, BASE, BALLOT)
    assert log.recall(3, BASE) == Recollection({Kind.BALLOT: BALLOT})


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path):
    log = SaidLog(tmp_path / "said")
    (tmp_path / "said").rmdir()
    with pytest.raises(CheckpointError, match="cannot list"):
        log.recall(3, BASE)


def test_a_disk_that_refuses_is_told_so_that_nothing_is_sent(tmp_path: Path):
    log = SaidLog(tmp_path / "said")
    (tmp_path / "said").rmdir()
    with pytest.raises(CheckpointError, match="cannot write"):
        log.record(3, BASE, BALLOT)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot create"):
        SaidLog(tmp_path / "file" / "said")
