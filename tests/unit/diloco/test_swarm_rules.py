import json

import pytest
from pydantic import ValidationError

from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ConfigError, SchemaMismatch


def test_rules_come_back_from_their_bytes():
    rules = Rules(aggregation_method="krum", krum_f=2, outer_lr=1, inner_steps=7)
    assert Rules.from_bytes(rules.to_bytes()) == rules
    assert Rules.from_bytes(rules.to_bytes()).rules_hash == rules.rules_hash


def test_the_bytes_of_the_defaults_never_change():
    # Every digest of every swarm covers these bytes.
    assert Rules().to_bytes() == (
        b'{"aggregation_method":"trimmed_mean","auto_scale":true,"bucket_size":1,"codec":"int4",'
        b'"codec_block":256,"contribution_momentum":0.0,"cosine_threshold":0.5,"decay_share":0.2,'
        b'"expelled":[],"inner_lr":0.002,"inner_optimizer":"adamw","inner_steps":500,'
        b'"inner_steps_max":1000,"inner_steps_min":50,'
        b'"krum_f":0,"krum_neighbours":"n-f-2","lr_floor":0.1,"lr_schedule":"constant",'
        b'"magnitude_ratio_threshold":10.0,'
        b'"norm_scaling":"down","outer_lr":0.7,"outer_momentum":0.9,"owner":"","revision":0,'
        b'"schedule_rounds":0,"topk_chunk":4096,'
        b'"topk_kept":64,"trimmed_mean_beta":0.1,"use_nnm":true,"warmup_steps":100}'
    )


def test_different_rules_have_different_hashes():
    assert Rules().rules_hash != Rules(outer_lr=0.8).rules_hash
    assert len(Rules().rules_hash) == 32


def altered(**changes: object) -> bytes:
    fields = json.loads(Rules().to_bytes()) | changes
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 16_000,
        b'{"a":' * 3_000,
        b"{}",
        b" " + Rules().to_bytes(),
        Rules().to_bytes() + b" " * 20_000,
        altered(unknown=1),
        altered(outer_lr=1),
        altered(outer_lr=-1.0),
        altered(outer_lr=float("nan")),
        altered(outer_momentum=1.0),
        altered(codec="int5"),
        altered(codec_block=255),
        altered(codec="topk"),
        altered(topk_kept=5000),
        altered(inner_steps_min=2000),
        altered(krum_f="0"),
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_bytes_that_are_not_rules_are_refused(data: bytes):
    with pytest.raises(SchemaMismatch, match="rules"):
        Rules.from_bytes(data)


def test_rules_are_frozen_and_closed():
    with pytest.raises(ValidationError, match="extra"):
        Rules(outer_lrr=0.7)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="frozen"):
        Rules().outer_lr = 1.0  # type: ignore[misc]


def test_an_illegal_pair_names_the_legal_ones():
    with pytest.raises(ConfigError) as caught:
        Rules(codec="topk", aggregation_method="trimmed_mean")
    assert "topk takes geometric_median, centered_clipping, multi_krum, krum, mean" in str(
        caught.value
    )
    assert "trimmed_mean takes int4" in str(caught.value)


def test_a_codec_brings_its_default_method():
    assert Rules(codec="topk").aggregation_method == "geometric_median"
    assert Rules(codec="int4").aggregation_method == "trimmed_mean"
    assert Rules(codec="topk", aggregation_method="krum").aggregation_method == "krum"
    with pytest.raises(ValidationError, match="codec"):
        Rules(codec=["topk"])  # type: ignore[arg-type]


def test_as_many_values_as_a_chunk_has_are_kept_at_most():
    with pytest.raises(ValidationError, match="topk_kept is above topk_chunk: 65 > 64"):
        Rules(topk_chunk=64, topk_kept=65)
