"""Which inner optimiser and rate a node founds a swarm with when none is set."""

from __future__ import annotations

from typing import Any

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.node.workload import make_rules


@pytest.mark.parametrize(
    ("settings", "is_handed_over", "inner"),
    [
        ({}, False, ("muon", 2.8e-3)),
        ({}, True, ("adamw", 2e-3)),
        ({"training": {"model": "rwkv7"}}, False, ("adamw", 2e-3)),
        ({"training": {"model": "mine:make"}}, False, ("adamw", 2e-3)),
        ({"lora": {"rank": 8, "base": "weights"}}, False, ("adamw", 2e-3)),
        ({"training": {"optimizer": "adamw"}}, False, ("adamw", 2e-3)),
        ({"training": {"optimizer": "muon"}}, True, ("muon", 2.8e-3)),
        ({"training": {"lr": 0.01}}, False, ("muon", 0.01)),
        ({"training": {"lr": 0.01}}, True, ("adamw", 0.01)),
    ],
)
def test_unset_it_follows_what_is_trained(
    settings: dict[str, Any], is_handed_over: bool, inner: tuple[str, float]
):
    rules = make_rules(SwarmNodeConfig(**settings).for_model(is_handed_over=is_handed_over))
    assert (rules.inner_optimizer, rules.inner_lr) == inner
