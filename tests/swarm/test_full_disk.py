"""A node whose disk fills up trains and follows; one whose disk is no use does not start."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroswarm.checkpoint.state_folder import open_state_folder
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import CheckpointError
from neuroswarm.node.home import open_home
from neuroswarm.service import State
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm

DISK_MB = 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, where a swarm in `tmp_path` keeps the member anna."""
    place = tmp_path / "anna"
    place.mkdir()
    mounted = mount("-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(place))
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=10)
    except FileNotFoundError:
        pytest.skip("no mount command here")


def fill(disk: Path) -> Path:
    """Take every byte that is left; returns the file that holds them."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue
    return ballast


def steps(member: Member) -> int:
    return member.parts.trainer.total.steps


async def test_a_node_on_a_full_disk_trains_follows_and_says_nothing(
    disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl = await swarm.found("anna", "bert", "carl")
        await swarm.until(lambda: (anna.statistics.durable_round or 0) >= 2, what="a durable round")
        with caplog.at_level(logging.INFO):
            ballast = fill(disk)
            said, trained = anna.statistics.contributions_published, steps(anna)
            await swarm.more_rounds(4)
            assert anna.statistics.contributions_published <= said + 1, "one was on its way"
            assert steps(anna) > trained
            durable = anna.statistics.durable_round
            assert durable is not None
            assert durable < anna.round - 1
            status = anna.parts.reporter.status()["checkpoints"]
            assert isinstance(status, dict)
            assert status["is_failing"]
            ballast.unlink()
            said = anna.statistics.contributions_published
            await swarm.until(
                lambda: anna.statistics.contributions_published > said,
                what="publications once there is room",
            )
            await swarm.until(
                lambda: (anna.statistics.durable_round or 0) > durable,
                what="checkpoints once there is room",
            )
        await swarm.until_level()
        assert all(member.core.state is State.RUNNING for member in (anna, bert, carl))
    lines = [record for record in caplog.records if str(disk) in record.getMessage()]
    for kind in ("checkpoint", "events.jsonl", "said"):
        about = [line.levelname for line in lines if kind in line.getMessage()]
        assert about.count("WARNING") == 1, [line.getMessage() for line in lines]


async def test_a_node_is_not_started_on_a_full_disk_but_says_what_to_do(disk: Path):
    config = SwarmNodeConfig(state_dir=disk / "node")
    open_home(config, clock=SystemClock()).close()
    ballast = fill(disk)
    with pytest.raises(CheckpointError, match=r"node/incarnation.*No space.*--state-dir"):
        open_home(config, clock=SystemClock())
    ballast.unlink()
    home = open_home(config, clock=SystemClock())
    assert home.folder.incarnation == 2
    home.close()


async def test_a_node_is_not_started_on_a_read_only_disk_but_says_which(disk: Path):
    clock = SystemClock()
    open_state_folder(disk / "node", clock=clock).close()
    assert mount("-o", "remount,ro", str(disk)).returncode == 0
    with pytest.raises(CheckpointError, match=r"node/lock: Read-only file system"):
        open_state_folder(disk / "node", clock=clock)


async def test_checkpoints_on_a_read_only_disk_of_their_own_are_read(disk: Path, tmp_path: Path):
    config = SwarmNodeConfig(state_dir=tmp_path / "node", checkpoint={"dir": disk / "checkpoints"})
    open_home(config, clock=SystemClock()).close()
    assert mount("-o", "remount,ro", str(disk)).returncode == 0
    home = open_home(config, clock=SystemClock())
    assert home.load_latest(bytes(32), b"") is None
    home.close()


async def test_a_lone_node_on_a_full_disk_trains_on(disk: Path, tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(2)
        ballast = fill(disk)
        trained = steps(anna)
        await swarm.until(lambda: steps(anna) > trained + 10, what="steps on a full disk")
        ballast.unlink()
        await swarm.more_rounds(1)
        round_ = anna.round
        await swarm.until(
            lambda: (anna.statistics.durable_round or 0) >= round_,
            what="checkpoints once there is room",
        )
