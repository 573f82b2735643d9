"""Settings are closed, frozen, checked, and explained in one line."""

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from neuroswarm.config import (
    AggregationConfig,
    BufferConfig,
    DilocoConfig,
    HeartbeatConfig,
    NetworkConfig,
    Section,
    SwarmNodeConfig,
    TrainingConfig,
)
from neuroswarm.config.flat import FLAT_PATHS
from neuroswarm.errors import ConfigError

FLAT_DEFAULTS = {
    "inbound_buffer_size": 100,
    "outbound_buffer_size": 50,
    "soft_overflow_threshold": 0.9,
    "hard_overflow_threshold": 0.99,
    "ack_timeout_ms": 200,
    "k_candidates": 3,
    "heartbeat_interval": 5.0,
    "heartbeat_port": 9999,
    "diloco_inner_steps": 500,
    "diloco_inner_steps_min": 50,
    "diloco_inner_steps_max": 1000,
    "diloco_outer_lr": 0.7,
    "diloco_outer_momentum": 0.9,
    "diloco_auto_scale": True,
    "checkpoint_interval": 120,
    "max_checkpoints": 5,
    "checkpoint_dir": None,
    "aggregation_method": "trimmed_mean",
    "krum_f": 0,
    "trimmed_mean_beta": 0.1,
    "cosine_threshold": 0.5,
    "magnitude_ratio_threshold": 10.0,
    "num_micro_batches": 4,
}

CHANGED = {
    "inbound_buffer_size": 7,
    "outbound_buffer_size": 8,
    "soft_overflow_threshold": 0.5,
    "hard_overflow_threshold": 0.95,
    "ack_timeout_ms": 300,
    "k_candidates": 2,
    "heartbeat_interval": 1.5,
    "heartbeat_port": 10_001,
    "diloco_inner_steps": 60,
    "diloco_inner_steps_min": 20,
    "diloco_inner_steps_max": 90,
    "diloco_outer_lr": 0.5,
    "diloco_outer_momentum": 0.25,
    "diloco_auto_scale": False,
    "checkpoint_interval": 30,
    "max_checkpoints": 2,
    "checkpoint_dir": Path("/somewhere"),
    "aggregation_method": "krum",
    "krum_f": 1,
    "trimmed_mean_beta": 0.2,
    "cosine_threshold": 0.3,
    "magnitude_ratio_threshold": 4.0,
    "num_micro_batches": 8,
}


def test_flat_names_and_their_defaults_are_the_documented_ones():
    config = SwarmNodeConfig()
    assert {name: getattr(config, name) for name in FLAT_PATHS} == FLAT_DEFAULTS


def test_flat_names_set_their_section():
    config = SwarmNodeConfig(**CHANGED)
    assert {name: getattr(config, name) for name in FLAT_PATHS} == CHANGED
    assert config.diloco == DilocoConfig(
        inner_steps=60,
        inner_steps_min=20,
        inner_steps_max=90,
        outer_lr=0.5,
        outer_momentum=0.25,
        auto_scale=False,
    )


def test_flat_name_joins_a_section_that_is_given_too():
    from_section = SwarmNodeConfig(diloco=DilocoConfig(outer_lr=0.5), diloco_inner_steps=10)
    from_mapping = SwarmNodeConfig(diloco={"outer_lr": 0.5}, diloco_inner_steps=10)
    assert from_section == from_mapping
    assert (from_section.diloco.outer_lr, from_section.diloco.inner_steps) == (0.5, 10)


def test_one_setting_given_both_ways_is_refused():
    with pytest.raises(ConfigError, match=r"krum_f and aggregation\.krum_f are the same"):
        SwarmNodeConfig(krum_f=1, aggregation=AggregationConfig(krum_f=2))


def test_resolved_settings_survive_json():
    config = SwarmNodeConfig(**CHANGED, network={"trackers": "http://a:1, http://b:2"})
    assert config.network.trackers == ("http://a:1", "http://b:2")
    assert SwarmNodeConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("section", [SwarmNodeConfig(), HeartbeatConfig()], ids=["whole", "part"])
def test_settings_are_frozen(section: Section):
    name = next(iter(type(section).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(section, name, getattr(section, name))


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ({"diloco_inner_step": 3}, "diloco_inner_steps"),
        ({"heartbeats": {}}, "heartbeat"),
        ({"heartbeat": {"interval": 3}}, "heartbeat.interval_s"),
        ({"agregation_method": "mean"}, "aggregation_method"),
        ({"lr": 0.7}, "training.lr"),
    ],
    ids=lambda value: str(value),
)
def test_unknown_setting_names_the_nearest(given: dict[str, object], nearest: str):
    with pytest.raises(ConfigError, match="unknown setting") as caught:
        SwarmNodeConfig(**given)
    assert f"did you mean {nearest!r}?" in str(caught.value)


def test_unknown_setting_without_a_near_one_names_the_sections():
    with pytest.raises(ConfigError, match="unknown setting 'zzz'; settings start with aggregation"):
        SwarmNodeConfig(zzz=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heartbeat_interval": 0}, "heartbeat.interval_s: 0 (must be greater than 0)"),
        ({"heartbeat_interval": math.nan}, "heartbeat.interval_s: nan (must be"),
        ({"training": {"lr": math.inf}}, "training.lr: inf (must be a finite number)"),
        ({"aggregation_method": "krun"}, "aggregation.method: 'krun' (must be 'mean', 'median'"),
        ({"diloco": 3}, "diloco: 3 is not a table of settings"),
        (
            {"network": {"trackers": 7101}},
            "network.trackers: 7101 (must be a list, or one text with commas)",
        ),
        (
            {"lora": {"alpha": 3}},
            "lora: alpha without rank trains no adapters (set lora.rank=8 too)",
        ),
        ({"run": {"rounds": 0}}, "run.rounds: 0 (must be greater than or equal to 1)"),
        (
            {"diloco_inner_steps_min": 2000},
            "diloco: inner_steps_min 2000 is above inner_steps_max 1000",
        ),
        (
            {"soft_overflow_threshold": 0.995},
            "buffers: soft_overflow_threshold 0.995 is above hard_overflow_threshold 0.99",
        ),
        ({"network": {"port": 65000}}, "network: port 65000 leaves no gRPC port 66000"),
        ({"rounds": {"settle_s": 9}}, "rounds: settle_s 9.0 is above ballot_deadline_s 2.0"),
        (
            {"diloco": {"codec": "topk"}, "aggregation_method": "median"},
            "aggregation method median cannot follow codec topk: topk takes geometric_median, cen",
        ),
        ({"diloco": {"topk_kept": 5000}}, "diloco: topk_kept 5000 is above topk_chunk 4096"),
        ({"diloco": {"codec": "int5"}}, "diloco.codec: 'int5' (must be 'int4' or 'topk')"),
        ({"training": {"num_heads": 3}}, "training: dim 128 is no multiple of 2 x num_heads 3"),
        (
            {"training": {"model": "rwkv"}},
            "training.model: 'rwkv' names no model (transformer, rwkv7, hf:FOLDER or module:fact",
        ),
        ({"training": {"model": "hf:"}}, "training.model: 'hf:' names no model"),
        ({"training": {"model": "a b:c"}}, "training.model: 'a b:c' names no model"),
        ({"training": {"model": "module"}}, "training.model: 'module' names no model"),
        (
            {"training": {"model": "rwkv7", "dim": 96}},
            "training: dim 96 is no multiple of 64, the width of a head in rwkv7 (or set num",
        ),
        (
            {"training": {"model": "rwkv7", "num_heads": 3}},
            "training: dim 128 is no multiple of num_heads 3",
        ),
        (
            {"training": {"model": "rwkv7", "num_heads": 128}},
            "training: dim 128 and num_heads 128 leave heads of width 1 (at least 2 in rwkv7)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_value_is_one_line_with_name_value_and_limit(given: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        SwarmNodeConfig(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"diloco": {"codec": "topk"}},
        {"diloco": DilocoConfig(codec="topk")},
        {"diloco": {"codec": "topk"}, "aggregation": AggregationConfig(krum_f=1)},
        {"diloco": {"codec": "topk"}, "krum_f": 1},
    ],
)
def test_the_sparse_codec_brings_a_rule_that_may_follow_it(given: dict[str, object]):
    config = SwarmNodeConfig(**given)
    assert config.aggregation.method == "geometric_median"
    assert config.aggregation.krum_f == (1 if len(given) == 2 else 0)
    assert SwarmNodeConfig.model_validate_json(config.model_dump_json()) == config


def test_a_rule_that_was_set_stays():
    for aggregation in (AggregationConfig(method="krum"), {"method": "krum"}):
        config = SwarmNodeConfig(diloco={"codec": "topk"}, aggregation=aggregation)
        assert config.aggregation_method == "krum"
    with pytest.raises(ConfigError, match="trimmed_mean cannot follow codec topk"):
        SwarmNodeConfig(diloco={"codec": "topk"}, aggregation_method="trimmed_mean")


def test_section_alone_explains_itself_too():
    with pytest.raises(ConfigError, match=r"^buffers\.inbound_size: 0 \(must be greater"):
        BufferConfig(inbound_size=0)


def test_grpc_listens_a_thousand_above_http_unless_told_otherwise():
    assert NetworkConfig(port=7200).bound_grpc_port == 8200
    assert NetworkConfig(port=7200, grpc_port=5).bound_grpc_port == 5
    assert NetworkConfig(port=0).bound_grpc_port == 0


def test_every_setting_is_documented():
    for section in (SwarmNodeConfig, *(type(v) for _, v in SwarmNodeConfig() if _is_section(v))):
        for name, field in section.model_fields.items():
            if section is not SwarmNodeConfig or name == "state_dir":
                assert field.description, f"{section.__name__}.{name} has no docstring"


def test_every_section_prefixes_its_complaints_with_its_own_name():
    for name, value in SwarmNodeConfig():
        if _is_section(value):
            assert type(value).prefix == f"{name}."


@pytest.mark.parametrize("num_peers", [1, 2, 10, 31, 100, 1000, 10**6])
def test_inner_steps_grow_with_the_logarithm_of_the_swarm(num_peers: int):
    config = SwarmNodeConfig(diloco_inner_steps=300)
    expected = int(300 * (1 + math.log10(num_peers) / 3))
    assert config.get_diloco_inner_steps(num_peers) == min(1000, expected)


def test_inner_steps_stay_within_limits_and_alone_at_the_base():
    config = SwarmNodeConfig(diloco_inner_steps=20)
    assert config.get_diloco_inner_steps(1) == 20
    assert config.get_diloco_inner_steps(10) == 50
    fixed = SwarmNodeConfig(diloco_inner_steps=20, diloco_auto_scale=False)
    assert fixed.get_diloco_inner_steps(10) == 20


def test_checkpoint_dir_is_created(tmp_path: Path):
    asked = tmp_path / "a" / "b"
    assert SwarmNodeConfig(checkpoint_dir=asked).get_checkpoint_dir() == asked
    assert asked.is_dir()
    derived = SwarmNodeConfig(state_dir=tmp_path).get_checkpoint_dir()
    assert derived == tmp_path / "checkpoints"
    assert derived.is_dir()


def test_checkpoint_dir_defaults_to_the_users_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = SwarmNodeConfig(network={"name": "mine"}).get_checkpoint_dir()
    assert folder == tmp_path / ".local/state/neuroswarm/mine/node/checkpoints"
    assert folder.is_dir()


def test_training_defaults_describe_a_legal_model():
    training = TrainingConfig()
    assert training.dim % training.heads == 0


@pytest.mark.parametrize(
    ("given", "heads"),
    [
        ({}, 4),
        ({"model": "rwkv7"}, 2),
        ({"model": "rwkv7", "dim": 768}, 12),
        ({"model": "rwkv7", "dim": 24, "num_heads": 3}, 3),
        ({"num_heads": 8}, 8),
    ],
    ids=str,
)
def test_heads_follow_the_model_unless_set(given: dict[str, Any], heads: int):
    assert TrainingConfig(**given).heads == heads


def _is_section(value: object) -> bool:
    return isinstance(value, Section)


@pytest.mark.parametrize("model", ["hf:some/folder", "package.module:factory", "m:Class.make"])
def test_models_of_others_may_be_named_and_have_no_heads_to_check(model: str):
    config = SwarmNodeConfig(training={"model": model, "dim": 100})
    assert config.training.model == model
