"""One small file, read and replaced whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.checkpoint.small_file import SmallFile
from neuroswarm.errors import CheckpointError


def test_what_was_written_last_is_read(tmp_path: Path):
    file = SmallFile(tmp_path / "small", 10)
    assert file.read() is None
    file.write(b"one")
    file.write(b"three")
    assert SmallFile(tmp_path / "small", 10).read() == b"three"
    assert file.bytes_written == 8
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_it_is_bounded_both_ways(tmp_path: Path):
    file = SmallFile(tmp_path / "small", 10)
    with pytest.raises(ValueError, match="limit 10"):
        file.write(bytes(11))
    (tmp_path / "small").write_bytes(bytes(11))
    with pytest.raises(CheckpointError, match="too large"):
        file.read()


def test_what_the_disk_refuses_is_said(tmp_path: Path):
    with pytest.raises(CheckpointError, match="cannot write"):
        SmallFile(tmp_path / "none" / "small", 10).write(b"one")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="cannot read"):
        SmallFile(tmp_path / "folder", 10).read()
