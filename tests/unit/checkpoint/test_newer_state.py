"""What a later version wrote is refused in one line and stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import torch

from neuroswarm.checkpoint import manifest
from neuroswarm.checkpoint.manifest import FORMAT, seal, unseal
from neuroswarm.checkpoint.state_folder import FORMAT_FILE, open_state_folder
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.clock import SystemClock
from neuroswarm.diloco.later import Later
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.errors import CheckpointCorrupt, NewerState


class NextRules(Rules):
    weighs_by_age: Annotated[bool, Later(since=3, before=False)] = True


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def seal_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], str]:
    """What versions of other formats write."""

    def write(format_: int) -> str:
        with monkeypatch.context() as other:
            other.setattr(manifest, "FORMAT", format_)
            return seal({"outer": "00" * 32})

    return write


def test_a_later_format_is_told_from_damage(seal_as: Callable[[int], str]):
    with pytest.raises(NewerState, match=f"format {FORMAT + 1}, this one reads {FORMAT}"):
        unseal(seal_as(FORMAT + 1))
    with pytest.raises(CheckpointCorrupt, match="format 1"):
        unseal(seal_as(1))
    with pytest.raises(CheckpointCorrupt, match="not what was written"):
        unseal(seal({"a": 1}).replace('"format": 2', '"format": 9'))


def test_a_checkpoint_of_a_later_format_is_not_put_aside(
    tmp_path: Path, seal_as: Callable[[int], str]
):
    inner = tmp_path / "inner-00000007"
    inner.mkdir()
    (inner / "manifest.json").write_text(seal_as(FORMAT + 1))
    before = contents(tmp_path)
    with pytest.raises(NewerState):
        CheckpointStore(tmp_path, 3)
    assert contents(tmp_path) == before


def test_an_outer_state_with_later_rules_is_not_put_aside(tmp_path: Path):
    state = genesis(NextRules(), bytes(32), [("all", torch.ones(3))])
    CheckpointStore(tmp_path, 3).save_outer(state, {})
    before = contents(tmp_path)
    with pytest.raises(NewerState, match=r"later version \(weighs_by_age\).*nothing was changed"):
        CheckpointStore(tmp_path, 3).load_latest()
    assert contents(tmp_path) == before


def test_a_folder_of_a_later_format_is_refused_before_anything_is_written(tmp_path: Path):
    open_state_folder(tmp_path, clock=SystemClock()).close()
    assert (tmp_path / FORMAT_FILE).read_text() == f"{FORMAT}\n"
    (tmp_path / FORMAT_FILE).write_text(f"{FORMAT + 1} and more\n")
    before = contents(tmp_path)
    with pytest.raises(NewerState, match="use that version, or another --state-dir"):
        open_state_folder(tmp_path, clock=SystemClock())
    assert contents(tmp_path) == before
    (tmp_path / FORMAT_FILE).write_text(f"{FORMAT}\n")
    open_state_folder(tmp_path, clock=SystemClock()).close()  # it was let go of


def test_a_damaged_stamp_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / FORMAT_FILE).write_bytes(bytes(4))
    open_state_folder(tmp_path, clock=SystemClock()).close()
    assert (tmp_path / FORMAT_FILE).read_text() == f"{FORMAT}\n"
    assert "damaged" in caplog.text
