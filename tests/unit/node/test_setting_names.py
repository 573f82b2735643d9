"""What a joiner is told of its settings is named as it would set it."""

from __future__ import annotations

from functools import reduce

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.diloco.rules import Rules
from neuroswarm.node.setting_names import name_setting
from neuroswarm.node.workload import describe_differences, make_rules

NO_SETTINGS = {"revision", "owner", "expelled"}


@pytest.mark.parametrize("rule", sorted(set(Rules.model_fields) - NO_SETTINGS))
def test_every_rule_of_a_founder_is_named_by_its_setting(rule: str):
    config = SwarmNodeConfig(training={"optimizer": "muon", "lr": 0.5})
    value = reduce(getattr, name_setting(rule).split("."), config)  # type: ignore[arg-type]
    assert value == getattr(make_rules(config), rule)


def test_differences_name_settings_and_both_values():
    own = make_rules(SwarmNodeConfig(training={"lr": 0.5, "optimizer": "muon"}))
    swarm = make_rules(SwarmNodeConfig(training={"lr": 0.25}))
    assert describe_differences(own, swarm) == [
        "training.optimizer muon (the swarm's: adamw)",
        "training.lr 0.5 (the swarm's: 0.25)",
    ]
