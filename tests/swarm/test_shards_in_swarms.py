"""Whole nodes with and without shards: they fetch them from each other, and train meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from shard_texts import SHARD_BYTES, make_empty, make_shards

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.node import SwarmNode
from neuroswarm.node.workload import Workload
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import SETTINGS, Swarm
from neuroswarm.testing.tiny_workload import TinyModel
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import shard_sightings

pytestmark = pytest.mark.slow

BYTES = "Shards/Bytes"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shard_sightings, "ASK_EVERY_S", 0.3)
    monkeypatch.setattr(shard_sightings, "ASK_SOON_S", 0.3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("data"))


def shards(member: Member) -> Mapping[str, Any]:
    status = member.parts.shards.get_status()
    assert status is not None
    return status


def num_held(member: Member) -> int:
    return int(shards(member)["held"])


def disk_bytes(member: Member) -> int:
    """What a living node's folder holds, of files and folders that may go while it is looked at."""
    total = 0
    for folder, _folders, names in os.walk(member.folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


async def test_two_nodes_without_shards_fetch_them_and_go_on_when_the_first_is_gone(
    tmp_path: Path, whole: Path
):
    """The source dies when the two have a part each: they get the rest from one another."""
    slowly = {"max_upload_mbit": 1.0}
    async with Swarm(tmp_path / "swarm", data=slowly) as swarm:
        folders = [make_empty(whole, tmp_path / name) for name in ("bert", "carl")]
        (anna,) = await swarm.start("anna", data=whole)
        (bert,), (carl,) = [await swarm.start(folder.name, data=folder) for folder in folders]

        def fetched(member: Member) -> frozenset[int]:
            return frozenset(member.parts.shards.batches.holding.fetched)

        def have_different_parts() -> bool:
            parts = fetched(bert), fetched(carl)
            return min(map(len, parts)) >= 2 and parts[0] != parts[1]

        await swarm.until(have_different_parts, what="a part for each")
        swarm.cut_power(anna)
        have = fetched(bert) | fetched(carl)
        assert fetched(bert) != fetched(carl)
        await swarm.until(
            lambda: fetched(bert) >= have and fetched(carl) >= have, what="what the other has"
        )
        assert any(member.parts.shards.donor.bytes_given > 0 for member in (bert, carl))
        await swarm.more_rounds(2, [bert, carl])
        digests = await swarm.digests([bert, carl])
        assert all(len(found) == 1 for found in digests.values())
        await swarm.bury(anna)


async def test_a_node_without_donors_waits_and_trains_once_one_appears(tmp_path: Path, whole: Path):
    async with Swarm(tmp_path / "swarm") as swarm:
        (bert,) = await swarm.start("bert", data=make_empty(whole, tmp_path / "bert"))
        assert not bert.core.is_voter, "nobody is to wait for it"
        await swarm.until(lambda: bert.parts.shards.crew.is_looking, what="a look around")
        assert bert.parts.trainer.total.steps == 0
        assert bert.parts.compute.failure is None
        (anna,) = await swarm.start("anna", data=whole)
        await swarm.until(lambda: bert.parts.trainer.total.steps > 0, what="a first step")
        await swarm.more_rounds(2)
        assert bert.core.is_voter
        assert bert.statistics.contributions_agreed + anna.statistics.contributions_agreed > 0


async def test_a_liar_is_left_for_an_honest_donor(tmp_path: Path, whole: Path):
    """The liar has a corpus of the same manifest with other bytes, checked by a broken disk."""
    async with Swarm(tmp_path / "swarm") as swarm:
        (liar,) = await swarm.start("liar", data=whole, trains=False)
        donor, wrong = liar.parts.shards.donor, tmp_path / "wrong"
        wrong.write_bytes(bytes(SHARD_BYTES))

        class Liar:
            corpus = liar.parts.shards.batches.holding.corpus

            def held_bits(self) -> bytes:
                return liar.parts.shards.batches.holding.held_bits()

            def is_to_be_read(self, _sha256: bytes) -> bool:
                return False

            def find(self, _sha256: bytes) -> Path:
                return wrong

        donor.shards = Liar()
        (bert,) = await swarm.start("bert", data=make_empty(whole, tmp_path / "bert"))
        await swarm.until(lambda: shards(bert)["wrong_total"] >= 1, what="a lie")
        assert num_held(bert) == 0
        await swarm.start("anna", data=whole)
        await swarm.until(lambda: num_held(bert) == 11, what="all shards")
        assert list(bert.parts.shards.batches.holding.own.glob(".unfinished*")) == []
        standings = bert.parts.membership.peers.conduct(bert.core.now())
        assert standings[liar.node_id].score > 0


async def test_a_restart_keeps_what_was_fetched_and_stays_within_the_room(
    tmp_path: Path, whole: Path
):
    async with Swarm(tmp_path / "swarm", resources={"max_storage_mb": 1}) as swarm:
        (anna,) = await swarm.start("anna", data=whole)
        (bert,) = await swarm.start("bert", data=make_empty(whole, tmp_path / "bert"))
        most = 0

        def has_much() -> bool:
            nonlocal most
            most = max(most, disk_bytes(bert))
            return num_held(bert) >= 5

        await swarm.until(has_much, what="some shards")
        before = bert.parts.shards.batches.holding.fetched
        swarm.network.drop(anna.node_id, method=BYTES, replies=True)
        (bert,) = await swarm.restart(bert)
        assert bert.parts.shards.batches.holding.fetched >= before
        await swarm.until(lambda: bert.parts.trainer.total.steps > 0, what="steps without a donor")
        assert shards(bert)["bytes_fetched_total"] == 0
        assert max(most, disk_bytes(bert)) <= 1_000_000


def test_train_step_is_none_until_there_is_data(tmp_path: Path, whole: Path):
    config = SwarmNodeConfig(
        **{name: values for name, values in SETTINGS.items() if name != "network"},
        network={"host": "127.0.0.1", "port": 0, "lan": False, "announce_host": "127.0.0.1"},
        state_dir=tmp_path / "state",
    )
    empty = make_empty(whole, tmp_path / "empty")
    node = SwarmNode(config, SwarmToken(bytes(32)), Workload(TinyModel(), empty))
    node.start()
    try:
        assert node.train_step() is None
        assert asyncio.run(_step(node)) is None
    finally:
        node.stop()
    node = SwarmNode(config, SwarmToken(bytes(32)), Workload(TinyModel(), whole))
    node.start()
    try:
        assert node.train_step() is not None
    finally:
        node.stop()


async def test_shards_cut_while_they_are_trained_on_end_the_training_and_not_the_node(
    tmp_path: Path,
):
    config = SwarmNodeConfig(
        **{name: values for name, values in SETTINGS.items() if name != "network"},
        network={"host": "127.0.0.1", "port": 0, "lan": False, "announce_host": "127.0.0.1"},
        state_dir=tmp_path / "state",
    )
    folder = make_shards(tmp_path)
    async with SwarmNode(config, SwarmToken(bytes(32)), Workload(TinyModel(), folder)) as node:
        running = asyncio.ensure_future(node.run())
        await until(lambda: node.total_training_steps > 0, what="steps")
        for path in folder.glob("train-*.tokens"):
            os.truncate(path, 0)
        await until(lambda: bool(node.get_stats()["trains_not_because"]), what="the reason")
        why = str(node.get_stats()["trains_not_because"])
        assert "was changed while it is trained on: 0 bytes instead of" in why
        assert node.get_stats()["state"] == "running"
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})


async def _step(node: SwarmNode) -> float | None:
    return await asyncio.to_thread(node.train_step)
