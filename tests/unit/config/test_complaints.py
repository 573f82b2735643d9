"""What newcomers get wrong is said in one line that tells what to write."""

from __future__ import annotations

from typing import Any

import pytest

from neuroswarm import create_swarm_node
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"checkpoint": {"interval_s": "2 min"}}, "a number of seconds, without a unit: write 120"),
        ({"checkpoint": {"interval_s": "90s"}}, "without a unit: write 90"),
        ({"pipeline": {"ack_timeout_ms": "0.2 s"}}, "milliseconds, without a unit: write 200"),
        ({"resources": {"max_storage_mb": "10GB"}}, "a whole number of MB, .* write 10000"),
        ({"data": {"max_upload_mbit": "1 Gbit/s"}}, "of Mbit/s, without a unit: write 1000"),
        ({"checkpoint": {"interval_s": "often"}}, "must be a number of seconds, without a unit"),
        ({"run": {"rounds": "many"}}, r"run.rounds: 'many' \(must be a whole number\)"),
        ({"network": {"lan": "maybe"}}, r"'maybe' \(must be true or false\)"),
        ({"training": {"lr": True}}, "training.lr: true is no number"),
        ({"krum_f": False}, "aggregation.krum_f: false is no number"),
        ({"training": {"model": 5}}, "training.model: 5"),
        ({"training": {"model": ""}}, r"training.model: '' is no value \(leave it out"),
        ({"resources": {"device": "  "}}, "resources.device: '  ' is no value"),
        ({"network": {"trackers": ""}}, "network.trackers: '' is no value"),
        ({"network": {"trackers": ["http://a:1", ""]}}, "network.trackers: .* is no value"),
        ({"guest": {"hours": ""}}, "guest.hours: '' is no value"),
        ({"data": {"path": ""}}, "data.path: '' is no path"),
        ({"training": {"lr_schedule": "cosine"}}, "lr_schedule cosine never falls without sched"),
        (
            {"heartbeat": {"interval_ms": 5}},
            r"did you mean 'heartbeat.interval_s'\? \(in seconds\)",
        ),
        ({"checkpoint": {"interval": 5}}, r"did you mean 'checkpoint.interval_s'\? \(in seconds\)"),
        ({"training": {"learning_rate": 1e-3}}, "did you mean 'training.lr'"),
        ({"training": {"seq_len": 64}}, "did you mean 'training.context'"),
        ({"network": {"token": "x"}}, "file of its own and name that in network.token_file"),
    ],
)
def test_it_is_said_what_to_write(given: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said) as caught:
        SwarmNodeConfig(**given)
    assert "\n" not in str(caught.value)


def test_an_empty_tracker_is_no_tracker():
    with pytest.raises(ConfigError, match=r"network.trackers: .* is no value"):
        create_swarm_node(None, 0, "")


def test_a_schedule_with_rounds_and_a_constant_rate_are_legal():
    SwarmNodeConfig(training={"lr_schedule": "wsd", "schedule_rounds": 10})
    SwarmNodeConfig(training={"lr_schedule": "constant"})
