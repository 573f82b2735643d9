import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.checkpoint.durable import replace_file
from neuroswarm.checkpoint.state_folder import (
    MAX_DEFAULT_NAMES,
    open_default_state_folder,
    open_state_folder,
)
from neuroswarm.clock import SystemClock
from neuroswarm.errors import CheckpointError
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.wire.heartbeats import Heartbeat

CLOCK = SystemClock()


def test_a_folder_in_use_is_refused_until_it_is_closed(tmp_path: Path):
    first = open_state_folder(tmp_path / "a", clock=CLOCK)
    with pytest.raises(CheckpointError, match=r"in use.*--state-dir"):
        open_state_folder(tmp_path / "a", clock=CLOCK)
    first.close()
    first.close()
    with open_state_folder(tmp_path / "a", clock=CLOCK) as second:
        assert second.path == tmp_path / "a"
    open_state_folder(tmp_path / "a", clock=CLOCK).close()


def test_defaults_in_use_give_the_next_name_and_free_ones_come_back(tmp_path: Path):
    folders = [open_default_state_folder(tmp_path, clock=CLOCK) for _ in range(3)]
    assert [folder.path.name for folder in folders] == ["node", "node-2", "node-3"]
    folders[1].close()
    assert open_default_state_folder(tmp_path, clock=CLOCK).path.name == "node-2"


def test_when_all_default_names_are_in_use_the_message_says_so(tmp_path: Path):
    held = [open_default_state_folder(tmp_path, clock=CLOCK) for _ in range(MAX_DEFAULT_NAMES)]
    with pytest.raises(CheckpointError, match="all 64"):
        open_default_state_folder(tmp_path, clock=CLOCK)
    for folder in held:
        folder.close()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path):
    script = (
        "import os, sys; from pathlib import Path\n"
        "from neuroswarm.checkpoint.state_folder import open_state_folder\n"
        "from neuroswarm.clock import SystemClock\n"
        "folder = open_state_folder(Path(sys.argv[1]), clock=SystemClock())\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="in use"):
            open_state_folder(tmp_path, clock=CLOCK)
        process.kill()
    with open_state_folder(tmp_path, clock=CLOCK) as folder:
        assert folder.incarnation == 2


def test_every_start_is_counted(tmp_path: Path):
    counts = []
    for _ in range(3):
        with open_state_folder(tmp_path, clock=CLOCK) as folder:
            counts.append(folder.incarnation)
    assert counts == [1, 2, 3]


DAMAGED = [b"", b"x7", b"\xff\xfe", b"1e3", b"-5", b"8388607", b"9" * 30, b"9" * 5000]


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda d: repr(d[:8]))
def test_a_damaged_counter_goes_on_above_all_counts_before(tmp_path: Path, damaged: bytes):
    with open_state_folder(tmp_path, clock=CLOCK):
        pass
    (tmp_path / "incarnation").write_bytes(damaged)
    counts = []
    for _ in range(2):
        with open_state_folder(tmp_path, clock=CLOCK) as folder:
            counts.append(folder.incarnation)
    assert counts[0] > 1_000_000
    assert counts[1] == counts[0] + 1
    OwnRecord(NodeKey.generate(), never_described, incarnation=counts[1])


@pytest.mark.parametrize("wall", [-1e9, 0.0, 1e12])
def test_a_wrong_clock_never_makes_a_count_out_of_range(tmp_path: Path, wall: float):
    (tmp_path / "incarnation").write_bytes(b"x7")
    with open_state_folder(tmp_path, clock=FakeClock(wall_s=wall)) as folder:
        OwnRecord(NodeKey.generate(), never_described, incarnation=folder.incarnation)


def never_described() -> Heartbeat:
    raise AssertionError("only the sequences matter here")


@pytest.mark.parametrize("name", ["lock", "incarnation"])
def test_what_cannot_be_used_is_named(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(CheckpointError, match=f"/{name}: Is a directory"):
        open_state_folder(tmp_path, clock=CLOCK)


def test_only_the_owner_may_look_inside(tmp_path: Path):
    with open_state_folder(tmp_path / "deep" / "a", clock=CLOCK) as folder:
        assert os.stat(folder.path).st_mode & 0o077 == 0
        assert folder.identity_path.parent == folder.path
        assert folder.checkpoints_path.parent == folder.path
        assert folder.said_path.parent == folder.path


def test_a_place_where_no_folder_can_be_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot use state folder .*file"):
        open_state_folder(tmp_path / "file" / "a", clock=CLOCK)
    (tmp_path / "b" / "incarnation").mkdir(parents=True)
    with pytest.raises(CheckpointError):
        open_state_folder(tmp_path / "b", clock=CLOCK)
    (tmp_path / "b" / "incarnation").rmdir()
    open_state_folder(tmp_path / "b", clock=CLOCK).close()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "file"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot write .*folder"):
        replace_file(tmp_path / "folder", b"three")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
