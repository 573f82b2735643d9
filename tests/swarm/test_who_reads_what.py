"""Members of a swarm read different windows of a round, and measure one held-out loss together."""

from __future__ import annotations

import statistics
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.share import Share
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.node.workload import Workload
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import SETTINGS, Swarm
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

NAMES = ("anna", "bert", "carl")


class NotedTokens(FlatTokens):
    """Notes where windows begin."""

    def __init__(self) -> None:
        super().__init__(tiny_text())
        self.starts: list[int] = []

    def windows(self, starts: Sequence[int], length: int) -> Tensor:
        self.starts = list(starts)
        return super().windows(starts, length)


class NotedBatches:
    """A node's batches, with notes of what it read in which share."""

    def __init__(self) -> None:
        training = SETTINGS["training"]
        self._tokens = NotedTokens()
        self._sampler = WindowSampler(
            self._tokens,
            context=training["context"],
            batch_size=training["batch_size"],
            seed=0,
        )
        self._share = Share()
        self.read: defaultdict[Share, list[int]] = defaultdict(list)
        self.evaluated: defaultdict[Share, set[int]] = defaultdict(set)
        self.indices: list[tuple[Share, int]] = []

    def train(self, index: int) -> Batch:
        batch = self._sampler.train(index)
        self.indices.append((self._share, index))
        self.read[self._share] += self._tokens.starts
        return batch

    def held_out(self, index: int, num_batches: int) -> Batch:
        return self._sampler.held_out(index, num_batches)

    def take_share(self, share: Share) -> None:
        self._share = share
        self._sampler.take_share(share)

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        batch = self._sampler.held_out_of(share, index, num_batches)
        self.evaluated[share].update(self._tokens.starts)
        return batch


def noting(notes: dict[str, NotedBatches]) -> Callable[[str, int], Workload]:
    return lambda name, seed: Workload(TinyModel(seed), notes.get(name) or tiny_text())


def rounds_read(notes: dict[str, NotedBatches]) -> dict[int, list[Share]]:
    """Shares of the rounds in which all three were members and read something."""
    shares = defaultdict(list)
    for batches in notes.values():
        for share, starts in list(batches.read.items()):
            if share.num_slots == 4 and starts:
                shares[share.round].append(share)
    return {round_: found for round_, found in shares.items() if len(found) == 3}


def swarm_loss(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = member.parts.reporter.status()["swarm_held_out"] or {}  # type: ignore[assignment]
    return found


def whole(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = member.parts.reporter.status()["global_training"]  # type: ignore[assignment]
    return found


@pytest.mark.slow
async def test_three_nodes_train_on_disjoint_windows_and_report_one_held_out_loss(tmp_path: Path):
    notes = {name: NotedBatches() for name in NAMES}
    async with Swarm(tmp_path, make_workload=noting(notes), step_s=0.01) as swarm:
        members = await swarm.found(*NAMES)
        await swarm.until(lambda: len(rounds_read(notes)) >= 4, what="four rounds of all three")
        shown: defaultdict[int, dict[str, float]] = defaultdict(dict)

        def all_have_shown_one_round() -> bool:
            for member in members:
                found = swarm_loss(member)
                if found.get("num_nodes") == 3:
                    shown[found["round"]][member.name] = found["loss"]
            return any(len(losses) == 3 for losses in shown.values())

        await swarm.until(all_have_shown_one_round, what="one loss at every node")
        await swarm.until(
            lambda: all(whole(m).get("is_improving") is not None for m in members), what="a trend"
        )
        await swarm.until(
            lambda: any(whole(m)["nodes_same"] == 3 for m in members), what="the same weights"
        )
        for found in map(whole, members):
            assert found["has_converged"]
            assert (found["nodes"], found["nodes_apart"]) == (3, 0)
            assert found["loss_nodes"] <= 3
            assert found["best_loss"] <= found["loss"] < 6
        logs = [await member.events() for member in members]
        assert all(len(found) == 1 for found in (await swarm.digests()).values())
    check_reading(notes)
    check_evaluating(notes)
    told = defaultdict(list)
    for log in logs:
        for event in log:
            if event["event"] == "commit":
                told[event["round"]].append(event["held_out_loss"])
        logged = [e["swarm_held_out"] for e in log if e.get("swarm_held_out")]
        assert any(found["num_nodes"] == 3 for found in logged)
        for found in logged:
            if found["num_nodes"] == 3 and len(shown.get(found["round"], {})) == 3:
                assert found["loss"] in shown[found["round"]].values()
    for round_, losses in shown.items():
        if len(losses) == 3:
            assert len(set(losses.values())) == 1, "the same number everywhere"
            middle = statistics.median(told[round_])
            assert set(losses.values()) == {struct.unpack("<f", struct.pack("<f", middle))[0]}
            assert len(set(told[round_])) == 3, "of different parts"


def check_reading(notes: dict[str, NotedBatches]) -> None:
    for round_, shares in rounds_read(notes).items():
        assert sorted(share.slot for share in shares) == [0, 1, 2], round_
        parts = [set(b.read[s]) for b in notes.values() for s in shares if s in b.read]
        for one, other in combinations(parts, 2):
            assert not one & other, f"round {round_}"
    for batches in notes.values():
        assert all(len(set(starts)) == len(starts) for starts in batches.read.values())
        counted: defaultdict[Share, list[int]] = defaultdict(list)
        for share, index in batches.indices:
            counted[share].append(index)
        for indices in counted.values():
            assert indices == list(range(len(indices))), "numbers begin at 0 with every share"


def check_evaluating(notes: dict[str, NotedBatches]) -> None:
    by_round: defaultdict[int, list[set[int]]] = defaultdict(list)
    for batches in notes.values():
        for share, starts in batches.evaluated.items():
            if share.num_slots == 4:
                by_round[share.round].append(starts)
    shared = [parts for parts in by_round.values() if len(parts) == 3]
    assert shared
    for parts in shared:
        for one, other in combinations(parts, 2):
            assert not one & other


@pytest.mark.slow
async def test_a_node_alone_and_one_that_joins_it_read_different_windows(tmp_path: Path):
    notes = {name: NotedBatches() for name in NAMES[:2]}
    async with Swarm(tmp_path, make_workload=noting(notes), step_s=0.01) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(3)
        await swarm.until(lambda: swarm_loss(anna).get("num_nodes") == 1, what="its own loss")
        assert swarm_loss(anna)["num_members"] == 1
        await swarm.start("bert")
        await swarm.until(lambda: bool(shared_rounds(notes)), what="a round that both read in")
    for ours, theirs in shared_rounds(notes).values():
        assert not set(ours) & set(theirs)
    lone = [share for share in notes["anna"].read if share.num_slots == 1]
    assert {share.round for share in lone} == {0}, "at genesis nobody is a member yet"


def shared_rounds(notes: dict[str, NotedBatches]) -> dict[int, tuple[list[int], list[int]]]:
    """What anna read, a member, and bert, a newcomer, in rounds with one member."""
    anna, bert = (
        {s.round: starts for s, starts in list(batches.read.items()) if s.num_slots == 2}
        for batches in notes.values()
    )
    return {r: (anna[r], bert[r]) for r in anna.keys() & bert.keys() if anna[r] and bert[r]}
