"""Settings written as TOML are read as the same settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from neuroswarm.cli.settings import Layer, from_file, resolve, setting_paths
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.toml import render_settings, render_template, show_value


def read(text: str, folder: Path) -> Layer:
    path = folder / "node.toml"
    path.write_text(text, encoding="utf-8")
    return from_file(path)


def test_the_template_sets_nothing(tmp_path: Path):
    assert not read(render_template(), tmp_path).values


def test_the_template_shows_every_setting_with_its_default(tmp_path: Path):
    lines = render_template().splitlines()
    uncommented = "\n".join(re.sub(r"^# (\w+ = )", r"\1", line) for line in lines)
    layer = read(uncommented, tmp_path)
    assert resolve([layer]).config == SwarmNodeConfig()
    unset = {line.split()[1] for line in lines if re.fullmatch(r"# \w+ is unset", line)}
    named = {path.rpartition(".")[2] for path in layer.values} | unset
    assert {path.rpartition(".")[2] for path in setting_paths()} == named


def test_what_is_shown_gives_the_same_settings_again(tmp_path: Path):
    config = SwarmNodeConfig(
        state_dir=Path('with "quotes" \\ and ümlauts'),
        network={"trackers": ["http://a:1", "http://b:2"], "name": "x", "lan": False},
        training={"lr": 1e-5, "lr_schedule": "wsd", "schedule_rounds": 7},
        metering={"data_caps": ["500MB/day"], "max_upload_bytes_per_s": "200kB"},
        guest={"hours": ["22:00-07:00"]},
    )
    shown = render_settings(config, lambda _path: "")
    assert resolve([read(shown, tmp_path)]).config == config


@pytest.mark.parametrize(
    "value", [True, 1e-05, 7, "", 'a "b" \\ \t ü \x7f', ["a", "b"], 1e300, [1, 2]]
)
def test_values_are_read_as_they_were(value: object):
    assert tomllib.loads(f"key = {show_value(value)}")["key"] == value
