import logging
import math
from collections import Counter
from dataclasses import replace

import pytest

from neuroswarm.checkpoint.budget import BURST_SHARE, DAY_S, ByteBudget
from neuroswarm.checkpoint.complaint import FIRST_PAUSE_S, MAX_PAUSE_S, Complaint
from neuroswarm.checkpoint.schedule import (
    MAX_MEMORY_STALL,
    MAX_OUTER_ALONE,
    MIN_AVAILABLE_MEMORY,
    MIN_BATTERY,
    MIN_HEAT_MARGIN_C,
    PEER_SPACING_S,
    RISK_SPACING_S,
    Decision,
    Risk,
    Situation,
    decide,
    find_risks,
)
from neuroswarm.errors import CheckpointError
from neuroswarm.hardware.facts import MachineFacts

INTERVAL_S = 120.0
OUTER, INNER = 800, 1200
IDLE = Situation(
    since_inner_s=1.0,
    has_trained=False,
    has_synced=False,
    is_outer_unwritten=False,
    outer_bytes=OUTER,
    inner_bytes=INNER,
)
SYNCED = replace(IDLE, has_synced=True, is_outer_unwritten=True, has_trained=True)
DUE = replace(IDLE, has_trained=True, since_inner_s=INTERVAL_S)
RISKY = replace(IDLE, new_risks=frozenset({Risk.BATTERY, Risk.HEAT}))
DESERTED = replace(IDLE, new_risks=frozenset({Risk.PEER}))
SAVING = replace(SYNCED, num_outer_alone=MAX_OUTER_ALONE)

RESCUE = Decision(inner=True, reason="the battery is low, the machine is near its heat limit")


def limited(situation: Situation, left: float, capacity: float = 1e6) -> Situation:
    return replace(situation, budget_left=left, budget_capacity=capacity)


CASES: dict[str, tuple[Situation, Decision]] = {
    "nothing happened": (IDLE, Decision()),
    "trained, interval not over": (replace(IDLE, has_trained=True), Decision()),
    "interval over, trained": (DUE, Decision(inner=True, reason="interval")),
    "interval over, not trained": (replace(DUE, has_trained=False), Decision()),
    "after an outer sync": (SYNCED, Decision(True, True, "outer sync")),
    "sync, outer written": (
        replace(SYNCED, is_outer_unwritten=False),
        Decision(inner=True, reason="outer sync"),
    ),
    "first state": (replace(IDLE, is_outer_unwritten=True), Decision(outer=True)),
    "risk": (RISKY, RESCUE),
    "risk soon after another": (replace(RISKY, since_risk_s=RISK_SPACING_S - 1), Decision()),
    "risk, then interval": (
        replace(DUE, new_risks=frozenset({Risk.PEER}), since_risk_s=1.0),
        Decision(inner=True, reason="interval"),
    ),
    "pause after trouble": (replace(SYNCED, is_pausing=True), Decision()),
    "budget for all": (limited(SYNCED, 2 * OUTER + INNER), Decision(True, True, "outer sync")),
    "budget for outer states only": (
        limited(SYNCED, 2 * OUTER + INNER - 1),
        Decision(outer=True, is_short=True),
    ),
    "budget for nothing": (limited(SYNCED, OUTER - 1), Decision(is_short=True)),
    "interval, next outer state first": (limited(DUE, OUTER + INNER - 1), Decision(is_short=True)),
    "interval, enough": (limited(DUE, OUTER + INNER), Decision(inner=True, reason="interval")),
    "risk does not wait for the next outer state": (
        limited(RISKY, INNER),
        RESCUE,
    ),
    "risk without a budget": (limited(RISKY, INNER - 1), Decision(is_short=True)),
    "one outer state less, not yet saving": (
        limited(replace(SAVING, num_outer_alone=MAX_OUTER_ALONE - 1), OUTER + INNER - 1),
        Decision(outer=True, is_short=True),
    ),
    "saving up for both": (limited(SAVING, OUTER + INNER - 1), Decision(is_short=True)),
    "saved up for both": (limited(SAVING, OUTER + INNER), Decision(True, True, "outer sync")),
    "saved up, outer written": (
        limited(replace(SAVING, is_outer_unwritten=False), INNER),
        Decision(inner=True, reason="outer sync"),
    ),
    "saving, without a limit": (SAVING, Decision(True, True, "outer sync")),
    "a peer leaves": (
        limited(DESERTED, OUTER + INNER),
        Decision(inner=True, reason="a peer is leaving"),
    ),
    "a peer leaves, next outer state first": (
        limited(DESERTED, OUTER + INNER - 1),
        Decision(is_short=True),
    ),
    "peers leave again and again": (
        replace(DESERTED, since_peer_s=PEER_SPACING_S - 1),
        Decision(),
    ),
    "peers leave, later": (
        replace(DESERTED, since_peer_s=PEER_SPACING_S, since_risk_s=PEER_SPACING_S),
        Decision(inner=True, reason="a peer is leaving"),
    ),
    "a leaving peer hides no other risk": (
        limited(replace(RISKY, new_risks=RISKY.new_risks | {Risk.PEER}, since_peer_s=90.0), INNER),
        RESCUE,
    ),
    "larger than the budget, full": (limited(SYNCED, 500, 500), Decision(True, True, "outer sync")),
    "larger than the budget, not full": (limited(SYNCED, 499, 500), Decision(is_short=True)),
}


@pytest.mark.parametrize(("situation", "expected"), CASES.values(), ids=CASES)
def test_what_is_written_when(situation: Situation, expected: Decision):
    assert decide(situation, INTERVAL_S) == expected


def simulate_days(num_days: int, *, daily_mb: float, outer_mb: int, inner_mb: int) -> list[str]:
    """What is written, in order, with a round every 5 minutes and a look every 5 seconds."""
    budget, written = ByteBudget(int(daily_mb * 1e6), 0.0), ["inner"]
    is_synced, is_unwritten, inner_at = True, False, 0
    for now in range(0, int(num_days * DAY_S), 5):
        if now % 300 == 0:
            is_synced, is_unwritten = False, True
        decision = decide(
            Situation(
                since_inner_s=now - inner_at,
                has_trained=True,
                has_synced=not is_synced,
                is_outer_unwritten=is_unwritten,
                num_outer_alone=written[::-1].index("inner"),
                budget_left=budget.left(now),
                budget_capacity=budget.capacity,
                outer_bytes=outer_mb * 1_000_000,
                inner_bytes=inner_mb * 1_000_000,
            ),
            300.0,
        )
        inner_at = now if decision.inner else inner_at
        for what, is_due, num_mb in (
            ("outer", decision.outer, outer_mb),
            ("inner", decision.inner, inner_mb),
        ):
            if is_due:
                budget.spend(num_mb * 1_000_000, now)
                written.append(what)
        is_synced = is_synced or decision.inner
        is_unwritten = is_unwritten and not decision.outer
    return written[1:]


DAYS = {
    "10M parameters on an SD card": ((1, 2048, 80, 240), {"inner": 4, "outer": 13}),
    "three such days": ((3, 2048, 80, 240), {"inner": 9, "outer": 36}),
    "1M parameters on an SD card": ((1, 2048, 8, 24), {"inner": 44, "outer": 123}),
    "larger than what may be left": ((3, 2048, 400, 1200), {"inner": 2, "outer": 6}),
    "as good as no limit": ((1, 1e6, 80, 240), {"inner": 288, "outer": 288}),
}


@pytest.mark.parametrize(("day", "expected"), DAYS.values(), ids=DAYS)
def test_a_short_budget_starves_neither_kind(day: tuple[int, float, int, int], expected: dict):
    num_days, daily_mb, outer_mb, inner_mb = day
    written = simulate_days(num_days, daily_mb=daily_mb, outer_mb=outer_mb, inner_mb=inner_mb)
    assert Counter(written) == expected
    alone = "".join(kind[0] for kind in written).split("i")
    assert max(map(len, alone)) <= MAX_OUTER_ALONE + 1, "the last one goes with the inner one"


FACTS: dict[str, tuple[MachineFacts, set[Risk]]] = {
    "nothing known": (MachineFacts(), set()),
    "memory ends": (MachineFacts(available_memory=MIN_AVAILABLE_MEMORY - 0.01), {Risk.MEMORY}),
    "memory enough": (MachineFacts(available_memory=MIN_AVAILABLE_MEMORY), set()),
    "stalls": (MachineFacts(memory_stall=MAX_MEMORY_STALL + 0.01), {Risk.MEMORY}),
    "battery low": (MachineFacts(battery=MIN_BATTERY - 0.01, is_discharging=True), {Risk.BATTERY}),
    "battery low, on mains": (MachineFacts(battery=MIN_BATTERY - 0.01), set()),
    "battery full": (MachineFacts(battery=1.0, is_discharging=True), set()),
    "hot": (MachineFacts(heat_margin_c=MIN_HEAT_MARGIN_C - 0.1), {Risk.HEAT}),
    "warm": (MachineFacts(heat_margin_c=MIN_HEAT_MARGIN_C), set()),
    "throttled": (MachineFacts(is_throttled=True), {Risk.HEAT}),
}


@pytest.mark.parametrize(("facts", "expected"), FACTS.values(), ids=FACTS)
def test_which_facts_are_risks(facts: MachineFacts, expected: set[Risk]):
    assert find_risks(facts) == expected


def test_no_24_hours_see_more_than_the_days_bytes():
    daily = 1_000_000
    budget, now, written = ByteBudget(daily, 0.0), 0.0, []
    while now < 3 * DAY_S:
        if budget.left(now) >= 10_000:
            budget.spend(10_000, now)
            written.append(now)
        else:
            now += 60.0
    in_a_day = [sum(10_000 for t in written if begin <= t < begin + DAY_S) for begin in written]
    assert max(in_a_day) <= daily
    assert sum(10_000 for t in written) > 2.4 * daily
    assert BURST_SHARE * daily <= in_a_day[0]


def test_what_had_to_be_written_is_missing_later():
    budget = ByteBudget(int(DAY_S), 0.0)
    budget.spend(budget.capacity + 100, 10.0)
    assert budget.left(10.0) == -100
    assert budget.left(10.0 + 200 / (1 - BURST_SHARE)) == pytest.approx(100)
    assert budget.left(5.0) == -100, "a clock that goes back gives nothing"


def test_without_a_limit_nothing_is_ever_short():
    budget = ByteBudget(None, 0.0)
    budget.spend(1e18, 0.0)
    assert budget.left(0.0) == math.inf
    assert not budget.is_limited


def test_trouble_is_said_once_and_pauses_grow(caplog: pytest.LogCaptureFixture):
    complaint, now, pauses = Complaint(logging.getLogger("disk"), "goes on"), 0.0, []
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            complaint.failed(CheckpointError("disk full"), now)
            began = now
            while complaint.is_pausing(now):
                now += FIRST_PAUSE_S
            pauses.append(now - began)
        assert complaint.is_open
        complaint.worked("writing")
        complaint.worked("writing")
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == MAX_PAUSE_S
    assert [record.getMessage() for record in caplog.records] == [
        "disk full (goes on)",
        "writing again",
    ]
    assert not complaint.is_open
