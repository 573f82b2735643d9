"""Sizes and caps as people write them."""

from __future__ import annotations

import pytest

from neuroswarm.cli.settings import from_assignments, from_environment, from_flags, resolve
from neuroswarm.config.metering import MeteringConfig, parse_cap, parse_size
from neuroswarm.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1234", 1234),
        ("500kB", 500_000),
        ("500 KB", 500_000),
        ("1.5GB", 1_500_000_000),
        ("20M", 20_000_000),
        ("1GiB", 2**30),
        ("2 TB", 2 * 10**12),
    ],
)
def test_sizes(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "kB", "-1MB", "1e9", "5 gallons", "10Mbit", "1 MB MB", "9" * 99]
)
def test_what_is_no_size(text: str):
    with pytest.raises(ValueError, match="is no number of bytes"):
        parse_size(text)


@pytest.mark.parametrize("text", ["500MB/day", "500 MB a day", "500MB per day", " 0.5GB / day "])
def test_caps(text: str):
    assert parse_cap(text) == ("day", 500_000_000)


@pytest.mark.parametrize("text", ["500MB", "500MB/week", "/day", "x/day", "500/month"])
def test_what_is_no_cap(text: str):
    with pytest.raises(ConfigError, match="metering"):
        MeteringConfig(data_caps=(text,))


@pytest.mark.parametrize("value", ["", " ,", ["500MB/day", ""]])
def test_an_empty_text_is_no_cap_either(value: object):
    with pytest.raises(ConfigError, match=r"is no (cap|value)"):
        MeteringConfig.model_validate({"data_caps": value})
    assert MeteringConfig.model_validate({"data_caps": []}).cap_bytes("day") is None


def test_two_caps_of_one_period_are_a_mistake():
    with pytest.raises(ConfigError, match="two of one period"):
        MeteringConfig(data_caps=("1GB/day", "2GB/day"))


def test_too_slow_an_upload_is_refused_with_the_limit():
    with pytest.raises(ConfigError, match="max_upload_bytes_per_s"):
        MeteringConfig.model_validate({"max_upload_bytes_per_s": "5kB"})


@pytest.mark.parametrize("value", ["200", 200])
def test_a_limit_without_a_unit_is_most_likely_a_mistake(value: object):
    with pytest.raises(ConfigError, match=r"too little: 200 bytes a second .*is a unit missing"):
        MeteringConfig.model_validate({"max_upload_bytes_per_s": value})
    with pytest.raises(ConfigError, match=r"too little: 1 byte .*is a unit missing"):
        MeteringConfig.model_validate({"data_caps": "1/day"})


def test_flags_variables_and_assignments_say_the_same():
    texts = "500MB/day,20GB/month"
    for layer in (
        from_flags({"data_cap": ["500MB/day", "20GB/month"], "max_upload": "200kB"}),
        from_environment({"NEUROSWARM_DATA_CAP": texts, "NEUROSWARM_MAX_UPLOAD": "200kB/s"}),
        from_assignments([f"metering.data_caps={texts}", "metering.max_upload_bytes_per_s=200000"]),
    ):
        metering = resolve([layer]).config.metering
        assert metering.cap_bytes("day") == 500_000_000
        assert metering.cap_bytes("month") == 20_000_000_000
        assert metering.max_upload_bytes_per_s == 200_000
    assert MeteringConfig().cap_bytes("day") is None
