"""`neuroswarm config`: what counts and where it comes from, a file to begin with, its check."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.cli.main import run
from neuroswarm.cli.settings import from_file, resolve
from neuroswarm.identity.token import SwarmToken


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)


def lines_of(text: str) -> dict[str, str]:
    """Settings shown, each with what stands behind it."""
    pairs = (line.partition("#") for line in text.splitlines() if " = " in line)
    return {setting.strip(): origin.strip() for setting, _, origin in pairs}


def test_each_setting_is_shown_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Path("node.toml").write_text("[diloco]\ninner_steps = 100\nouter_lr = 0.5\n")
    monkeypatch.setenv("NEUROSWARM_DILOCO_OUTER_LR", "0.6")
    flags = ["--config", "node.toml", "--port", "8000", "--set", "training.dim=64", "--no-lan"]
    assert run(["config", "show", "--origin", *flags]) == 0
    shown = lines_of(capsys.readouterr().out)
    assert shown["inner_steps = 100"] == "node.toml"
    assert shown["outer_lr = 0.6"] == "NEUROSWARM_DILOCO_OUTER_LR"
    assert shown["port = 8000"] == "--port"
    assert shown["dim = 64"] == "--set"
    assert shown["lan = false"] == "--no-lan"
    assert shown["clip_norm = 1.0"] == "default"


def test_only_what_was_changed_is_shown_if_asked(capsys: pytest.CaptureFixture[str]):
    assert run(["config", "show", "--changed", "--rounds", "3"]) == 0
    assert capsys.readouterr().out == "[run]\nrounds = 3\n"


def test_what_is_shown_can_be_given_back(capsys: pytest.CaptureFixture[str]):
    assert run(["config", "show", "--origin", "--rounds", "3", "--tracker", "http://a:7101"]) == 0
    Path("again.toml").write_text(capsys.readouterr().out)
    again = resolve([from_file(Path("again.toml"))]).config
    assert (again.run.rounds, again.network.trackers) == (3, ("http://a:7101",))


def test_the_token_is_told_by_its_place_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    secret = SwarmToken.new().text
    Path("token").write_text(f"{secret}\n")
    monkeypatch.setenv("NEUROSWARM_TOKEN_FILE", "token")
    assert run(["config", "show", "--origin"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# swarm token: from NEUROSWARM_TOKEN_FILE (token)\n")
    assert secret not in out


def test_a_token_that_a_node_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("NEUROSWARM_TOKEN", "abc")
    assert run(["config", "show", "--origin"]) == 77
    assert "malformed swarm token" in capsys.readouterr().err


def test_a_flag_that_no_node_has_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert run(["config", "show", "--roundz", "3"]) == 2
    assert "--rounds" in capsys.readouterr().err


def test_init_writes_a_file_that_check_takes_and_never_over_another(
    capsys: pytest.CaptureFixture[str],
):
    assert run(["config", "init"]) == 0
    assert run(["config", "check", "neuroswarm.toml"]) == 0
    assert "0 settings, nothing wrong" in capsys.readouterr().out
    before = Path("neuroswarm.toml").read_bytes()
    assert run(["config", "init"]) == 78
    assert "there is a file already" in capsys.readouterr().err
    assert Path("neuroswarm.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\nround = 3\n", "unknown setting 'run.round'; did you mean 'run.rounds'?"),
        ("[run]\nrounds = 0\n", "run.rounds: 0 (must be greater than or equal to 1), set by bad"),
        ("[run\n", "is not TOML"),
        ("token = 'x'\n", "network.token_file"),
        ("state_dir = 3\n", "state_dir: 3 (must be a path, in quotes), set by bad.toml"),
        ("[network]\ntrackers = ['300.1.1.1:7101']\n", "300.1.1.1"),
    ],
)
def test_check_says_in_one_line_what_is_wrong(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
):
    Path("bad.toml").write_text(text)
    assert run(["config", "check", "bad.toml"]) == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_check_refuses_one_port_for_two_things(capsys: pytest.CaptureFixture[str]):
    Path("node.toml").write_text("[network]\nport = 7500\ngrpc_port = 7500\n")
    assert run(["config", "check", "node.toml"]) == 78
    assert "port 7500 is asked for twice: for HTTP and for gRPC" in capsys.readouterr().err
    Path("node.toml").write_text("[network]\ngrpc_port = 7101\n")
    assert run(["config", "check", "node.toml"]) == 0, "HTTP moves on from its default"
