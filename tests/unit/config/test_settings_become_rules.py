"""The settings of a new swarm and its rules agree: defaults, ranges, steps per round."""

import pytest
from pydantic.fields import FieldInfo

from neuroswarm.config import AggregationConfig, DilocoConfig, SwarmNodeConfig, TrainingConfig
from neuroswarm.config.reference import annotation_if_set
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import get_inner_steps
from neuroswarm.node.workload import make_rules

TRAINING_RULES = {
    "optimizer": "inner_optimizer",
    "lr": "inner_lr",
    "warmup_steps": "warmup_steps",
    "lr_schedule": "lr_schedule",
    "schedule_rounds": "schedule_rounds",
    "decay_share": "decay_share",
    "lr_floor": "lr_floor",
}
SETTINGS: dict[str, FieldInfo] = {
    **DilocoConfig.model_fields,
    **{
        "aggregation_method" if name == "method" else name: field
        for name, field in AggregationConfig.model_fields.items()
    },
    **{rule: TrainingConfig.model_fields[name] for name, rule in TRAINING_RULES.items()},
}


def test_default_settings_make_the_default_rules():
    assert make_rules(SwarmNodeConfig()) == Rules()


def test_settings_that_are_changed_change_the_rules():
    config = SwarmNodeConfig(
        diloco={"codec": "topk", "topk_chunk": 64, "topk_kept": 4, "contribution_momentum": 0.5},
        aggregation={"bucket_size": 2, "norm_scaling": "clip"},
        training={
            "optimizer": "muon",
            "lr": 0.01,
            "warmup_steps": 7,
            "lr_schedule": "wsd",
            "schedule_rounds": 90,
            "decay_share": 0.5,
            "lr_floor": 0.0,
        },
    )
    assert make_rules(config) == Rules(
        codec="topk",
        aggregation_method="geometric_median",
        topk_chunk=64,
        topk_kept=4,
        contribution_momentum=0.5,
        bucket_size=2,
        norm_scaling="clip",
        inner_optimizer="muon",
        inner_lr=0.01,
        warmup_steps=7,
        lr_schedule="wsd",
        schedule_rounds=90,
        decay_share=0.5,
        lr_floor=0.0,
    )


def test_every_rule_is_a_setting_with_the_same_legal_values():
    # The owner's decisions are no settings; the owner itself is one of the network.
    assert SETTINGS.keys() | {"owner", "revision", "expelled"} == Rules.model_fields.keys()
    for name, setting in SETTINGS.items():
        rule = Rules.model_fields[name]
        assert annotation_if_set(setting) == rule.annotation, name
        assert sorted(map(repr, setting.metadata)) == sorted(map(repr, rule.metadata)), name


@pytest.mark.parametrize("base", [20, 300, 900])
@pytest.mark.parametrize("auto_scale", [True, False])
@pytest.mark.parametrize("num_peers", [1, 2, 7, 40, 1000])
def test_steps_per_round_are_those_of_the_rules(base: int, auto_scale: bool, num_peers: int):
    config = SwarmNodeConfig(diloco_inner_steps=base, diloco_auto_scale=auto_scale)
    assert config.get_diloco_inner_steps(num_peers) == get_inner_steps(
        make_rules(config), num_peers
    )
