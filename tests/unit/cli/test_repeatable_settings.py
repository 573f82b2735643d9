"""What may be given several times counts from the environment and from a file too."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run

WRONG = {
    "NEUROSWARM_TRACKER": ("tracker", "foo:bar", ExitCode.CONFIG),
    "NEUROSWARM_PEER": ("peer", "a:b", ExitCode.CONFIG),
    "NEUROSWARM_DATA_CAP": ("data_cap", "much", ExitCode.CONFIG),
    "NEUROSWARM_ACCEPT_TOKEN_FILE": ("accept_token_file", "missing", ExitCode.AUTH),
}
SETTINGS = {
    "network.trackers": "foo:bar", "network.peers": "a:b", "metering.data_caps": "much",
}  # fmt: skip


@pytest.mark.parametrize("variable", WRONG)
def test_a_wrong_value_in_the_environment_ends_the_node(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    _, value, code = WRONG[variable]
    monkeypatch.setenv(variable, value)
    assert run(["node", "--minutes", "0.01"]) == code
    assert value in capsys.readouterr().err


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_wrong_value_in_a_file_ends_the_node(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    section, _, key = setting.partition(".")
    path = tmp_path / "settings.toml"
    path.write_text(f'[{section}]\n{key} = ["{SETTINGS[setting]}"]\n')
    assert run(["node", "--minutes", "0.01", "--config", str(path)]) == ExitCode.CONFIG
    assert SETTINGS[setting] in capsys.readouterr().err


def test_a_flag_replaces_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("NEUROSWARM_TRACKER", "foo:bar")
    flags = ["--tracker", "bar:foo", "--minutes", "0.01"]
    assert run(["node", *flags]) == ExitCode.CONFIG
    told = capsys.readouterr().err
    assert "bar:foo" in told
    assert "foo:bar" not in told


def test_the_doctor_reads_them_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("NEUROSWARM_TRACKER", "foo:bar")
    assert run(["doctor", "--quick"]) == ExitCode.CONFIG
    assert "foo:bar" in capsys.readouterr().err
