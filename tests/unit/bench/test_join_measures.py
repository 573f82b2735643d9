"""What the join benchmark makes of what nodes wrote down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from neuroswarm.bench.join_bench import FULL, QUICK
from neuroswarm.bench.join_link import LimitedRpc
from neuroswarm.bench.join_measures import check, check_transfer, measure, to_json
from neuroswarm.bench.join_model import CheapModel
from neuroswarm.bench.join_transfer import Transfer
from neuroswarm.demo.events import Committed, Published
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.values import NodeId

ME = "ab" * 20


def commit(time: float, round_: int, *signers: str) -> Committed:
    return Committed(time, round_, "d" * 64, False, False, (), signers, 0, None, 0, 0, 0, 0.0)


def lines(state_at: float = 112.0, fetched: int = 10_000_000) -> list[dict[str, Any]]:
    return [
        {"what": "started", "time": 100.0},
        {"what": "peers", "time": 101.0},
        {"what": "progress", "time": 105.0, "donors": ["x", "y"]},
        {"what": "progress", "time": 106.0, "donors": ["y", "z"]},
        {"what": "state", "time": state_at, "node_id": ME, "bytes_fetched": fetched,
         "state_bytes": 10_000_000},
    ]  # fmt: skip


def rounds(first_agreed: int) -> list[Committed]:
    """A round takes 20 s; they end at 60, 80, 100, ..."""
    return [
        commit(40.0 + 20.0 * k, k, "other", *([ME] if k >= first_agreed else []))
        for k in range(1, 9)
    ]


PUBLISHED = [Published(130.0, 4, "c")]


def test_a_joiner_that_takes_part_in_the_next_round_keeps_every_promise():
    joined = measure(lines(), rounds(5), PUBLISHED, bandwidth_mbit=8.0, peak_mb=77)
    assert (joined.physical_s, joined.peers_s, joined.state_s) == (10.0, 1.0, 12.0)
    assert joined.transfer_ratio == pytest.approx(1.1)
    assert (joined.fetched_ratio, joined.num_donors) == (1.0, 3)
    assert (joined.takes_part_s, joined.agreed_s, joined.rounds_waited) == (20.0, 40.0, 0)
    assert (joined.round_before_s, joined.round_during_s) == (20.0, 20.0)
    assert all(p.holds for p in check("case", joined, is_disturbed=False))
    assert to_json(joined)["peak_mb"] == 77


def test_a_slow_transfer_breaks_its_promise():
    joined = measure(lines(114.0), rounds(5), PUBLISHED, bandwidth_mbit=8.0, peak_mb=0)
    broken = [p.name for p in check("case", joined, is_disturbed=False) if not p.holds]
    assert broken == ["case: transfer"]


def test_bytes_fetched_twice_break_their_promise():
    joined = measure(lines(fetched=12_100_000), rounds(5), PUBLISHED, bandwidth_mbit=8.0, peak_mb=0)
    broken = [p.name for p in check("case", joined, is_disturbed=True) if not p.holds]
    assert broken == ["case: fetched"]


def test_rounds_that_a_joiner_lets_pass_break_their_promise():
    joined = measure(lines(), rounds(6), PUBLISHED, bandwidth_mbit=8.0, peak_mb=0)
    assert joined.rounds_waited == 1
    broken = [p.name for p in check("case", joined, is_disturbed=True) if not p.holds]
    assert broken == ["case: contributes"]


def test_others_that_are_held_up_break_their_promise():
    held_up = [*rounds(5)[:4], commit(200.0, 5, ME)]
    joined = measure(lines(), held_up, PUBLISHED, bandwidth_mbit=8.0, peak_mb=0)
    assert joined.round_during_s == pytest.approx((80.0 + 20.0) / 2)
    names = [p.name for p in check("case", joined, is_disturbed=False) if not p.holds]
    assert names == ["case: others"]
    assert all(p.holds for p in check("case", joined, is_disturbed=True))


def test_a_joiner_that_never_contributes_is_told():
    with pytest.raises(ValueError, match="never agreed"):
        measure(lines(), rounds(99), PUBLISHED, bandwidth_mbit=8.0, peak_mb=0)


@pytest.mark.parametrize(
    ("seconds", "fetched", "holds"),
    [(12.0, 12, [True, True]), (12.1, 10, [False, True]), (10.0, 13, [True, False])],
)
def test_a_transfer_alone_is_judged_alike(seconds: float, fetched: int, holds: list[bool]):
    found = check_transfer("case", Transfer(10, fetched, 10.0, seconds, 3))
    assert [promise.holds for promise in found] == holds


def test_a_cheap_model_has_about_as_many_parameters_as_asked_for():
    model = CheapModel(200_000)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(200_000, rel=0.1)
    assert model(torch.tensor([[0, 31]])).shape == (1, 2, 32)


def test_every_case_has_a_name_of_its_own():
    names = [case.name for case in (*QUICK, *FULL)]
    assert len(set(names)) == len(names)


async def test_a_limited_link_takes_as_long_as_its_bandwidth_says():
    clock, network = FakeClock(), MemoryNetwork()
    server, end = network.rpc(NodeId(b"s" * 20)), network.rpc(NodeId(b"c" * 20))

    async def give(_caller: NodeId, _request: bytes):
        for _ in range(10):
            yield bytes(1000)

    server.serve_stream("Test/Give", give)
    for rpc in (server, end):
        await rpc.start()
    limited = LimitedRpc(end, 1000.0, clock)
    arrivals: list[float] = []
    began_at = clock.monotonic()

    async def fetch() -> None:
        stream = limited.stream(server.address, "Test/Give", b"", timeout_s=50)
        arrivals.extend([clock.monotonic() - began_at async for _ in stream])

    work = asyncio.ensure_future(fetch())
    while not work.done():
        await clock.advance(0.25)
    assert arrivals == pytest.approx([float(k) for k in range(1, 11)], abs=0.3)
