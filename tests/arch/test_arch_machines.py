"""Folders of emulated machines are made once, and made anew after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from arch_machines import Unprepared, make_once


class Maker:
    """Makes a folder with one file in it, and counts."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.num_made = 0

    def __call__(self) -> None:
        self.target.mkdir()  # as mmdebstrap: fails where nothing holds it, or something is there
        (self.target / "made").write_text(str(self.num_made))
        self.num_made += 1


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "work" / "machine" / "root")


def test_the_folder_that_holds_it_is_made_too(maker: Maker):
    make_once(maker.target, "bookworm", maker)
    assert (maker.target / "made").read_text() == "0"


def test_what_was_finished_is_not_made_again(maker: Maker):
    for _ in range(2):
        make_once(maker.target, "bookworm", maker)
    assert maker.num_made == 1


def test_another_key_makes_it_anew(maker: Maker):
    for key in ("bookworm", "trixie"):
        make_once(maker.target, key, maker)
    assert (maker.target / "made").read_text() == "1"


def test_what_failed_half_way_is_made_anew(maker: Maker):
    def fail() -> None:
        maker.target.mkdir()
        (maker.target / "half").write_text("")
        raise Unprepared("no network")

    with pytest.raises(Unprepared):
        make_once(maker.target, "bookworm", fail)
    make_once(maker.target, "bookworm", maker)
    assert [path.name for path in maker.target.iterdir()] == ["made"]
