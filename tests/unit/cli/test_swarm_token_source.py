"""Where the swarm token is taken from."""

import logging
from pathlib import Path

import pytest

from neuroswarm.cli.settings import from_environment, from_flags, resolve
from neuroswarm.cli.swarm_token import find_accepted, find_token, load_token
from neuroswarm.errors import AdmissionError
from neuroswarm.identity.token import SwarmToken


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("from-file\n")
    return path


def test_flags_win_over_environment_over_configuration(file: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.write_text("from-other")
    environment = {"NEUROSWARM_TOKEN_FILE": str(file)}
    assert find_token("flag", None, environment, other) == "flag"
    assert find_token(None, other, environment, file) == "from-other"
    assert find_token(None, None, environment, other) == "from-file"
    assert find_token(None, None, {"NEUROSWARM_TOKEN": "env"}, other) == "env"
    assert find_token(None, None, {}, other) == "from-other"
    assert find_token(None, None, {}) is None


@pytest.mark.parametrize(
    ("flag", "environment", "name"),
    [
        ("", {"NEUROSWARM_TOKEN": "env"}, "--token"),
        (" \n", {}, "--token"),
        (None, {"NEUROSWARM_TOKEN": ""}, "NEUROSWARM_TOKEN"),
        (None, {"NEUROSWARM_TOKEN_FILE": " "}, "NEUROSWARM_TOKEN_FILE"),
    ],
)
def test_an_empty_token_opens_no_swarm(flag: str | None, environment: dict[str, str], name: str):
    with pytest.raises(AdmissionError, match=f"token is empty: {name} .*leave {name} out"):
        find_token(flag, None, environment)


def test_an_empty_variable_is_none_where_another_place_gives_the_token(file: Path):
    empty = {"NEUROSWARM_TOKEN": ""}
    assert find_token(None, None, empty, file) == "from-file"
    assert find_token(None, None, empty | {"NEUROSWARM_TOKEN_FILE": str(file)}) == "from-file"
    assert find_token("flag", None, empty) == "flag"


def test_two_tokens_of_one_rank_are_refused(file: Path):
    with pytest.raises(AdmissionError, match="--token and --token-file exclude each other"):
        find_token("flag", file, {})
    with pytest.raises(AdmissionError, match="NEUROSWARM_TOKEN and NEUROSWARM_TOKEN_FILE"):
        find_token(None, None, {"NEUROSWARM_TOKEN": "a", "NEUROSWARM_TOKEN_FILE": "b"})


@pytest.mark.parametrize("content", [None, b"", b" \n\n"], ids=["missing", "empty", "blank"])
def test_token_file_without_a_token_is_an_error(tmp_path: Path, content: bytes | None):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AdmissionError, match="token file"):
        find_token(None, path, {})


def test_swarm_without_a_token_is_loudly_open(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert load_token(None).is_open
    assert "OPEN to everybody" in caplog.text


def test_token_is_read_back():
    token = SwarmToken.new()
    assert load_token(token.text) == token


def test_accepted_tokens_come_from_flags_else_the_environment(tmp_path: Path):
    environment = {"NEUROSWARM_ACCEPT_TOKEN_FILE": "a, b,"}
    assert find_accepted([tmp_path], environment) == (tmp_path,)
    assert find_accepted([], environment) == (Path("a"), Path("b"))
    assert find_accepted(None, {}) == ()


def test_node_settings_take_accepted_token_files_from_flag_and_environment():
    path = "network.accepted_token_files"
    flags = from_flags({"accept_token_file": [Path("a"), Path("b")]})
    assert resolve([flags]).asked(path) == (Path("a"), Path("b"))
    environment = from_environment({"NEUROSWARM_ACCEPT_TOKEN_FILE": "a,b"})
    assert resolve([environment]).asked(path) == (Path("a"), Path("b"))
