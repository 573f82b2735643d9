"""Numbers of a run, from tables of events."""

import pytest
from records import committed, published, record

from neuroswarm.demo import measures
from neuroswarm.demo.events import Life


def test_traffic_is_measured_between_full_rounds_only():
    first = record(
        "a",
        committed(1, 10.0, bytes_sent=5_000),  # alone
        committed(2, 20.0, steps=100, bytes_sent=90_000),  # after a joiner's download
        committed(3, 30.0, steps=160, bytes_sent=91_000),
        committed(4, 40.0, steps=210, bytes_sent=92_000),
    )
    second = record(
        "b",
        committed(1, 11.0, is_download=True, bytes_sent=10),
        committed(2, 20.0, steps=40, bytes_sent=1_000),
        committed(3, 30.0, steps=95, bytes_sent=2_000),
        committed(4, 40.0, steps=150, bytes_sent=3_500),
        committed(5, 50.0, steps=210, bytes_sent=9_500),
    )
    traffic = measures.measure_traffic([first, second])
    assert traffic is not None
    assert (traffic.first_round, traffic.last_round) == (2, 4)
    num_bytes, steps = 2_000 + 2_500, 110 + 110
    assert traffic.bytes_per_peer_per_round == num_bytes / 2 / 2
    assert traffic.inner_steps_per_round == steps / 2 / 2
    # ring all-reduce: 2 (N - 1) / N * 4 bytes * parameters, per peer and step
    assert traffic.bytes_vs_allreduce == pytest.approx(2 * 1 / 2 * 4 * 1000 * steps / num_bytes)
    assert traffic.bytes_before == (90_000 + 1_000) / 2


def test_traffic_of_too_few_common_rounds_is_unknown():
    assert measures.measure_traffic([record("a", committed(1, 1.0))]) is None
    assert measures.measure_traffic([record("a"), record("b", committed(1, 1.0))]) is None
    assert measures.measure_traffic([]) is None


def test_latency_counts_from_the_last_publication_of_the_set():
    a = record("a", published("a", 0, 9.0), committed(1, 10.5))
    b = record("b", published("b", 0, 10.0), committed(1, 10.25))
    assert measures.commit_latencies([a, b]) == [0.5, 0.25]


def test_latency_leaves_out_lone_rounds_repairs_and_unknown_publications():
    peer = record(
        "a",
        published("a", 0, 9.0),
        published("a", 1, 19.0),
        published("b", 1, 19.0),
        committed(1, 10.0, signers=["a"]),
        committed(2, 90.0, is_repair=True),
        committed(3, 30.0, signers=["a", "stranger"]),
        committed(4, 40.0, is_download=True),
    )
    assert measures.commit_latencies([peer]) == []


def test_hostile_publications_count_but_not_hostile_commits():
    a = record("a", published("a", 0, 9.0), committed(1, 10.5))
    b = record("b", published("b", 0, 10.0), committed(1, 99.0), hostile=True)
    assert measures.commit_latencies([a, b]) == [0.5]


def test_utilisation_is_the_share_of_wall_time_in_steps():
    peer = record("a", committed(1, 10.0, step_s=5.0), committed(2, 20.0, step_s=13.0))
    assert measures.mean_utilisation([peer]) == pytest.approx(0.8)
    assert measures.mean_utilisation([record("a", committed(1, 1.0))]) is None


def test_time_between_two_lives_is_nobodys():
    lives = [Life(0.0, 22.0), Life(50.0, 1000.0)]
    peer = record(
        "a",
        committed(1, 10.0, step_s=5.0, bytes_sent=100),
        committed(2, 20.0, step_s=14.0, bytes_sent=300),
        committed(3, 60.0, step_s=1.0, bytes_sent=50),
        committed(4, 70.0, step_s=10.0, bytes_sent=150),
        lives=lives,
    )
    assert measures.mean_utilisation([peer]) == pytest.approx(18 / 20)
    assert measures.bytes_by_round([peer]) == [(2, 200.0), (4, 100.0)]


def test_loss_curve_is_over_the_most_steps():
    curve = measures.loss_curve(
        [
            record("a", committed(1, 1.0, steps=50, loss=3.0), committed(2, 2.0, loss=None)),
            record("b", committed(1, 1.0, steps=60, loss=3.0)),
            record("c", committed(1, 1.0, steps=90, loss=3.0)),
        ]
    )
    assert curve == [measures.Point(1, 90, 3.0)]


def test_return_counts_rounds_from_being_back():
    others = record(
        "a",
        committed(5, 50.0),
        committed(6, 60.0),
        committed(7, 70.0),  # the agreed set of round 6, without the returned peer
        committed(8, 80.0, signers=["a", "b"]),
        lives=[Life(0.0, 100.0)],
    )
    back = record(
        "b",
        published("b", 3, 35.0),
        committed(6, 62.0, is_download=True),
        published("b", 7, 78.0),
        lives=[Life(0.0, 38.0), Life(57.0, 100.0)],
    )
    (found,) = measures.find_returns([others, back])
    assert (found.round_at_start, found.round_at_join, found.contributed_in) == (5, 6, 7)
    assert found.rounds_until_contributing == 1
    assert found.seconds_to_join == 5.0


def test_return_that_never_contributes_says_so():
    others = record("a", committed(5, 50.0), committed(6, 60.0, signers=["a"]))
    back = record("b", published("b", 5, 59.0), lives=[Life(0.0, 38.0), Life(57.0, 100.0)])
    (found,) = measures.find_returns([others, back])
    assert found.rounds_until_contributing is None
    assert measures.find_returns([others]) == []
