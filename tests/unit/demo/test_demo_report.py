"""What a demo concludes: a report and the claims that hold."""

import json
from typing import Any

import pytest
from records import committed, published, record

from neuroswarm.demo.events import Life
from neuroswarm.demo.report import Comparison, check_claims, make_report
from neuroswarm.demo.scenario import summarise

NUM_PARAMS = 1000
GOOD_BYTES = 2 * NUM_PARAMS
"""A peer sends 2 bytes a parameter and round: 6 x 50 / 2 = 3 x 50 less than an all-reduce."""


def peer(name: str, *, latency_s: float = 0.5, bytes_per_round: int = GOOD_BYTES, **kinds: Any):
    events = []
    for r in range(1, 5):
        events.append(published(name, r - 1, 10.0 * r))
        events.append(
            committed(
                r,
                10.0 * r + latency_s,
                signers=list("abcd"),
                num_params=NUM_PARAMS,
                bytes_sent=r * bytes_per_round,
                step_s=9.0 * r,
            )
        )
    return record(name, *events, **kinds)


def swarm(**kinds: Any):
    return [peer(name, **kinds) for name in "abcd"]


def broken(report: dict[str, Any]) -> list[str]:
    return [claim.name for claim in check_claims(report) if not claim.holds]


def test_good_run_holds_all_it_promises():
    report = make_report(swarm(), Comparison(1.5, alone=1.6))
    assert broken(report) == []
    assert len(check_claims(report)) == 5
    assert report["rounds"] == 4
    assert report["digests_equal"] == 1.0
    assert report["foreign_contributions_used"] == 4 * 4 * 3
    assert report["commit_latency_s"] == 0.5
    assert report["inner_steps_per_round"] == 50
    assert report["bytes_vs_allreduce"] == pytest.approx(150)
    assert report["bytes_per_peer_per_round"] == GOOD_BYTES
    assert report["utilisation"] == pytest.approx(0.9)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert any("swarm 1.5000" in line for line in summarise(report))


@pytest.mark.parametrize(
    ("changes", "losses", "name"),
    [
        ({"latency_s": 1.1}, Comparison(1.5, alone=1.6), "commit_latency_s"),
        ({"bytes_per_round": GOOD_BYTES + 20}, Comparison(1.5, alone=1.6), "bytes_vs_allreduce"),
        ({}, Comparison(1.6, alone=1.6), "loss_swarm"),
        ({}, Comparison(1.09, reference=1.0), "loss_ratio"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_promise_is_named(changes: dict[str, Any], losses: Comparison, name: str):
    assert broken(make_report(swarm(**changes), losses)) == [name]


def test_differing_digests_break_the_promise():
    odd = record("d", *(committed(r, 10.0 * r, "odd") for r in range(1, 5)))
    report = make_report([*swarm()[:3], odd], Comparison(1.5, reference=1.5))
    assert report["unequal_rounds"] == [1, 2, 3, 4]
    assert "digests_equal" in broken(report)


def test_hostile_peers_digests_do_not_matter_but_their_number_is_told():
    odd = record("d", *(committed(r, 10.0 * r, "odd") for r in range(1, 5)), hostile=True)
    report = make_report([*swarm()[:3], odd], Comparison(1.5, reference=1.5))
    assert broken(report) == []
    assert (report["peers"], report["hostile_peers"]) == (4, 1)


@pytest.mark.parametrize(("comes_back", "names"), [(True, []), (False, ["restart of d"])])
def test_killed_peer_must_contribute_again(comes_back: bool, names: list[str]):
    second = [published("d", 3, 39.0)] if comes_back else []
    events = [published("d", 0, 10.0), committed(1, 10.5, signers=list("abcd")), *second]
    killed = record("d", *events, lives=[Life(0.0, 15.0), Life(35.0, 50.0)])
    report = make_report([*swarm()[:3], killed], Comparison(1.5, reference=1.5))
    assert broken(report) == names
    assert report["restarts"][0]["rounds_until_contributing"] == (0 if comes_back else None)


def test_run_without_full_rounds_says_what_is_unknown():
    report = make_report([record("a"), record("b")], Comparison(3.0, alone=3.0))
    assert report["bytes_vs_allreduce"] is None
    assert "commit_latency_s" in broken(report)
    assert "bytes_vs_allreduce" in broken(report)
    assert summarise(report)
