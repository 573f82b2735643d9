"""A killed process's folder of sockets is removed by the next process that makes one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.net.socket_folder import PREFIX, SocketFolder

MAKE_AND_WAIT = """
from neuroswarm.net.socket_folder import SocketFolder
folder = SocketFolder.make()
(folder.path / "own").touch()
print(folder.path, flush=True)
input()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def start_other() -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_dead_are_cleared_away_and_the_living_left_alone(place: Path):
    (dead, left), (alive, kept) = start_other(), start_other()
    dead.kill()
    dead.communicate()
    assert left.is_dir()
    mine = SocketFolder.make()
    assert set(place.iterdir()) == {kept, mine.path}
    alive.communicate("\n")
    mine.remove()
    SocketFolder.make().remove()
    assert list(place.iterdir()) == []


def test_only_its_user_may_enter(place: Path):
    folder = SocketFolder.make()
    assert folder.path.parent == place
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()


def test_what_is_not_locked_yet_and_what_others_put_there_stays(place: Path):
    being_made = place / f"{PREFIX}new"
    being_made.mkdir()
    target = place / "target"
    target.mkdir()
    (target / "lock").touch()
    link = place / f"{PREFIX}link"
    link.symlink_to(target)
    foreign = place / f"{PREFIX}foreign"
    foreign.mkdir()
    (foreign / "lock").touch()
    if os.getuid() == 0:
        os.chown(foreign, 65534, 65534)
    SocketFolder.make().remove()
    kept = {being_made, target, link, *({foreign} if os.getuid() == 0 else ())}
    assert set(place.iterdir()) == kept
    assert (target / "lock").exists()
