"""What docker complains of, in one line that says what to do: recorded texts of real clients."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.deployment.complaints import MAX_SAID_CHARACTERS, explain, no_client
from neuroswarm.errors import DeployError, DockerUnavailable

RECORDED = Path(__file__).parents[2] / "data" / "docker" / "complaints.toml"
COMPLAINTS: dict[str, dict[str, Any]] = tomllib.loads(RECORDED.read_text())


@pytest.mark.parametrize("name", COMPLAINTS)
def test_what_is_known_says_what_to_do(name: str):
    told = COMPLAINTS[name]
    error = explain(told["command"], 1, told["said"])
    assert type(error) is (DockerUnavailable if told["is_unavailable"] else DeployError)
    assert told["advice"] in str(error)
    assert str(error).endswith(f"the command: {told['command']}")


def test_notes_before_the_complaint_are_no_part_of_it():
    error = explain("docker stack deploy", 1, COMPLAINTS["no_secret"]["said"])
    assert str(error).startswith("docker: service node: secret not found: neuroswarm_token (")


def test_what_is_not_known_is_given_as_it_was_said():
    error = explain("docker x", 3, "Error response from daemon: it rains\n")
    assert str(error) == "docker failed, exit code 3: it rains; the command: docker x"


def test_the_last_error_among_many_lines_is_the_one_that_counts():
    said = "\n".join(["#1 DONE", "ERROR: first", "#2 CANCELED", "ERROR: failed to solve: x", " "])
    assert "exit code 1: failed to solve: x;" in str(explain("docker buildx build", 1, said))


def test_a_flag_that_an_old_plugin_lacks_is_no_missing_plugin():
    said = "unknown flag: --raw\nSee 'docker buildx imagetools inspect --help'."
    error = explain("docker buildx imagetools inspect --raw x", 1, said)
    assert not isinstance(error, DockerUnavailable)


def test_a_long_complaint_is_cut_and_silence_is_named():
    assert len(str(explain("docker x", 1, "y" * 10_000))) < MAX_SAID_CHARACTERS + 100
    assert "not a word" in str(explain("docker x", 1, ""))


def test_without_a_client_the_line_says_what_to_install():
    assert "docker.io" in str(no_client())
