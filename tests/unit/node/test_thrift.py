"""When a node on a metered link contributes nothing, and what it counts as ready meanwhile."""

from __future__ import annotations

import pytest

from neuroswarm.config import RoundConfig
from neuroswarm.config.metering import MeteringConfig
from neuroswarm.metering.framing import Moved
from neuroswarm.metering.meter import Meter
from neuroswarm.node.thrift import Thrift
from neuroswarm.testing.fake_clock import FakeClock

MB = 1_000_000


class Nowhere:
    """Keeps nothing."""

    def read(self) -> bytes | None:
        return None

    def write(self, data: bytes) -> None:
        pass


def make(**settings: object) -> tuple[Thrift, Meter]:
    meter = Meter(MeteringConfig.model_validate(settings), Nowhere(), FakeClock())
    return Thrift(meter, RoundConfig()), meter


def test_without_limits_nothing_is_skipped():
    thrift, _ = make()
    assert not thrift.must_skip(10**12, 1000, 50)
    assert thrift.num_skipped == 0


def test_a_contribution_must_fit_before_the_reserve_for_all_who_pull_it():
    thrift, meter = make(data_caps=["100MB/day"])
    assert not thrift.must_skip(10 * MB, 8, 50)
    assert thrift.must_skip(10 * MB, 9, 50)
    meter.watch(iter([Moved(), Moved(80 * MB, 0), Moved(80 * MB, 0)]).__next__)
    assert thrift.must_skip(10 * MB, 1, 50)
    assert not thrift.must_skip(9 * MB, 1, 50)
    assert thrift.num_skipped == 2


def test_a_lone_node_pays_nothing():
    thrift, meter = make(data_caps=["1MB/day"])
    meter.watch(iter([Moved(), Moved(10 * MB, 0)]).__next__)
    assert not thrift.must_skip(10 * MB, 0, 50)


def test_steps_count_anew_after_a_round_left_out_and_all_of_them_after_publishing():
    thrift, _ = make(data_caps=["1MB/day"])
    assert thrift.steps_towards(50) == 50
    assert thrift.must_skip(10 * MB, 3, 50)
    assert thrift.steps_towards(50) == 0
    assert thrift.steps_towards(90) == 40
    assert thrift.must_skip(10 * MB, 3, 100)
    assert thrift.steps_towards(120) == 20
    assert thrift.steps_towards(7) == 7  # it has published meanwhile
    assert thrift.steps_towards(120) == 120


@pytest.mark.parametrize(
    ("payload_bytes", "num_peers", "rate", "must"),
    [
        (8 * 1024, 50, 16_384, False),  # goes with its header
        (64 * 1024, 50, 16_384, True),
        (200_000, 1, 40_000, False),
        (200_000, 1, 39_999, True),
        (200_000, 4, 159_999, True),
        (30 * MB, 1, 1_000_000, False),
        (30 * MB, 1, 999_999, True),
    ],
)
def test_a_contribution_must_be_had_before_the_peers_give_up(
    payload_bytes: int, num_peers: int, rate: int, must: bool
):
    thrift, _ = make(max_upload_bytes_per_s=rate)
    assert thrift.must_skip(payload_bytes, num_peers, 50) is must


def test_too_slow_a_link_is_said_once(caplog: pytest.LogCaptureFixture):
    thrift, _ = make(max_upload_bytes_per_s=16_384)
    for _ in range(3):
        assert thrift.must_skip(10 * MB, 3, 50)
    assert caplog.text.count("is too little") == 1
