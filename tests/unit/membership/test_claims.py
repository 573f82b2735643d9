from __future__ import annotations

import pytest

from neuroswarm.membership.claims import MARGIN_S, MAX_TOKENS_PER_S, SLACK, find_excess
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.messages import Contribution

RATE = 1000.0
LONG_AGO_S = 1e6


def claim(tokens: int, inner_steps: int, round_: int = 7) -> Contribution:
    return Contribution(
        swarm_id=b"s" * 32,
        round=round_,
        base_digest=b"d" * 32,
        architecture=b"a" * 32,
        codec="int4",
        inner_steps=inner_steps,
        tokens=tokens,
        loss=1.0,
        fragments=(),
    )


def heartbeat(rate: float = RATE, round_: int = 7, inner_steps: int = 0) -> Heartbeat:
    return Heartbeat(
        swarm_id=b"s" * 32,
        sequence=1,
        time=0.0,
        host="10.0.0.7",
        grpc_port=8101,
        heartbeat_port=9999,
        http_port=7101,
        protocol=1,
        is_training=True,
        round=round_,
        tokens_per_s=rate,
        inner_steps=inner_steps,
    )


def excess(made: Contribution, said: Heartbeat, elapsed_s: float, age_s: float) -> str | None:
    return find_excess(made, said, elapsed_s=elapsed_s, heartbeat_age_s=age_s)


def test_work_at_the_rate_of_the_heartbeats_is_no_excess():
    assert excess(claim(60_000, 60), heartbeat(inner_steps=55), 60.0, 5.0) is None


def test_tokens_are_bounded_by_rate_and_time_with_slack():
    most = int(SLACK * RATE * (60.0 + MARGIN_S))
    assert excess(claim(most, 60), heartbeat(round_=6), 60.0, 5.0) is None
    assert "1000 a second" in str(excess(claim(most + 1, 60), heartbeat(round_=6), 60.0, 5.0))


def test_a_peer_that_names_no_rate_is_bounded_by_what_no_node_can_do():
    most = int(SLACK * MAX_TOKENS_PER_S * MARGIN_S)
    assert excess(claim(most, 60), heartbeat(0.0), 0.0, 0.0) is None
    assert excess(claim(most + 1, 60), heartbeat(0.0), 0.0, 0.0) is not None


@pytest.mark.parametrize(("tokens", "steps"), [(9, 10), (1, 0)], ids=["too few", "without steps"])
def test_a_step_reads_at_least_one_token(tokens, steps):
    assert excess(claim(tokens, steps), heartbeat(), LONG_AGO_S, LONG_AGO_S) is not None


def test_nothing_claimed_is_no_excess():
    assert excess(claim(0, 0), heartbeat(), 0.0, 0.0) is None


def test_steps_beyond_those_told_of_fit_into_the_time_since():
    most = int(SLACK * MARGIN_S)  # at 1000 tokens a step and 1000 tokens a second
    told = 100
    fits, too_many = told + most, told + most + 1
    said = heartbeat(inner_steps=told)
    assert excess(claim(1000 * fits, fits), said, LONG_AGO_S, 0.0) is None
    assert "inner steps" in str(excess(claim(1000 * too_many, too_many), said, LONG_AGO_S, 0.0))


def test_steps_told_of_in_another_round_say_nothing():
    assert excess(claim(10**6, 1000), heartbeat(round_=6), LONG_AGO_S, 0.0) is None
