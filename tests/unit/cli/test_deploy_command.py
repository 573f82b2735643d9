"""`neuroswarm deploy` as users meet it, without docker: dry runs, questions, mistakes."""

import io
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from neuroswarm.cli import deploy_services
from neuroswarm.cli.deploy import app
from neuroswarm.cli.deploy_operator import packaged
from neuroswarm.cli.main import run
from neuroswarm.deployment.variables import (
    DEFAULT_IMAGE,
    DEFAULT_SECRET,
    STACK_VARIABLES,
)
from neuroswarm.identity.token import SwarmToken

SOURCES = Path(__file__).parents[3]
STACK_FILES = ("stack.yml", "stack-overlay.yml")
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing on the PATH, so that a dry run that runs something fails."""
    for name in [name for name in os.environ if name.startswith("NEUROSWARM_")]:
        monkeypatch.delenv(name)
    for name in STACK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def dry(capsys: Capture, *words: str) -> list[str]:
    """The lines of a dry run that went well."""
    assert run(["deploy", *words, "--dry-run"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return streams.out.splitlines()


def test_init_shows_all_that_it_does(capsys: Capture):
    assert dry(capsys, "init", "--advertise", "10.0.0.5")[1:] == [
        "docker version --format '{{.Server.Version}}'",
        "docker info --format '{{json .Swarm}}'",
        "neuroswarm token new --out neuroswarm-token",
        "docker swarm init --advertise-addr 10.0.0.5",
        "docker secret create neuroswarm_token - < neuroswarm-token",
        (
            "docker node update --label-add neuroswarm.tracker=true "
            "\"$(docker node inspect self --format '{{.ID}}')\""
        ),
        "docker info --format '{{json .Swarm}}'",
        "docker swarm join-token --quiet worker",
    ]
    assert not Path("neuroswarm-token").exists()


def test_init_takes_a_token_that_is_there(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    text = SwarmToken.new().text
    Path("my token").write_text(text + "\n")
    lines = dry(capsys, "init", "--token-file", "my token", "--secret", "t2", "--no-tracker")
    assert "docker secret create t2 - < 'my token'" in lines
    assert not any("token new" in line or "node update" in line for line in lines)
    monkeypatch.setenv("NEUROSWARM_TOKEN", text)
    lines = dry(capsys, "init")
    assert "printenv NEUROSWARM_TOKEN | docker secret create neuroswarm_token -" in lines
    assert text not in "".join(lines)


def test_join_and_label(capsys: Capture):
    assert dry(capsys, "join", "10.0.0.5", "--join-token", "SWMTKN-1-x") == [
        "docker swarm join --token SWMTKN-1-x 10.0.0.5:2377"
    ]
    assert dry(capsys, "label", "a", "b", "--class", "laptop", "--skip") == [
        f"docker node update --label-add neuroswarm.class=laptop --label-add neuroswarm.skip=true"
        f" {one}"
        for one in "ab"
    ]


def test_push_looks_before_it_publishes(capsys: Capture):
    image = "registry.lan:5000/neuroswarm:1"
    build, inspect, publish = dry(capsys, "push", str(SOURCES), "--image", image)
    assert shlex.split(build)[-3:] == ["--file", str(packaged("Dockerfile")), str(SOURCES)]
    assert inspect == f"docker buildx imagetools inspect --raw {image}-candidate"
    assert publish == f"docker buildx imagetools create --tag {image} {image}-candidate"


def test_deploy_names_what_the_stack_file_gets(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NODE_PORT", "7201")
    [line] = dry(capsys, "deploy", "--tracker-host", "10.0.0.5", "--variable", "GRPC_PORT=8201")
    words = shlex.split(line)
    assert words[0] == "env"
    given = dict(word.split("=", 1) for word in words[1 : words.index("docker")])
    assert given == {
        "TRACKER_HOST": "10.0.0.5",
        "IMAGE": DEFAULT_IMAGE,
        "TOKEN_SECRET": DEFAULT_SECRET,
        "SETTINGS_VERSION": "1",
        "GRPC_PORT": "8201",
        "NODE_PORT": "7201",
    }
    assert words[words.index("docker") :] == [
        *("docker", "stack", "deploy", "--compose-file", str(packaged("stack.yml"))),
        *("--resolve-image", "always", "neuroswarm"),
    ]


def test_the_overlay_stack_needs_no_tracker(capsys: Capture):
    [line] = dry(capsys, "deploy", "--overlay", "--name", "ns", "--resolve-image", "never")
    assert str(packaged("stack-overlay.yml")) in line
    assert "TRACKER_HOST" not in line


def test_update_and_rollback(capsys: Capture):
    assert dry(capsys, "update", "--image", "a:2", "--parallelism", "4") == [
        (
            "docker service update --image a:2 --update-order stop-first --update-parallelism 4 "
            "neuroswarm_node"
        )
    ]
    assert dry(capsys, "update", "--rollback", "--service", "tracker") == [
        "docker service update --rollback neuroswarm_tracker"
    ]


def test_scale_explains_and_changes_nothing(capsys: Capture):
    assert run(["deploy", "scale"]) == 0
    assert "neuroswarm deploy label NODE --skip" in capsys.readouterr().out
    assert run(["deploy", "scale", "4"]) == 2
    assert "cannot scale to 4" in capsys.readouterr().err


def test_files_are_copied_to_be_changed(capsys: Capture):
    assert run(["deploy", "files", "--to", "fleet"]) == 0
    assert Path("fleet/stack.yml").read_bytes() == packaged("stack.yml").read_bytes()
    assert run(["deploy", "files", "--to", "fleet"]) == 78
    assert "there is something already: fleet" in capsys.readouterr().err
    [line] = dry(capsys, "deploy", "--tracker-host", "x", "--file", "fleet/stack.yml")
    assert "--compose-file fleet/stack.yml" in line


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["label", "a"], 2, "give --class, --skip"),
        (["label", "a", "--class", "phone"], 2, "phone"),
        (["join", "10.0.0.5"], 2, "--join-token"),
        (["join", "10.0.0.5", "--join-token", "nst"], 78, "begins with SWMTKN-"),
        (["init", "--dry-run", "--token-file", "bad"], 77, "malformed swarm token"),
        (["build"], 78, "nothing to build from in ."),
        (["build", str(SOURCES), "--load"], 78, "--load takes one platform"),
        (["build", str(SOURCES), "--platforms", "arm64"], 78, "no platforms: 'arm64'"),
        (["push", "--image", "a:1"], 78, "nothing to build from in ."),
        (["push", "--image", "a"], 78, "write REGISTRY/NAME:TAG"),
        (["push", "--platforms", "linux/amd64"], 70, "linux/amd64 alone is not pushed"),
        (["deploy", "--variable", "X=1"], 78, "no variable of the stack files: X"),
        (["update"], 2, "give either --image or --rollback"),
        (["update", "--image", "a", "--rollback"], 2, "give either --image or --rollback"),
        (["remove", "--volumes", "--confirm", "other"], 70, "'other' is not 'neuroswarm'"),
        (["status"], 69, "there is no program `docker`"),
        (["remove", "--yes"], 69, "there is no program `docker`"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_an_exit_code(
    words: list[str], code: int, line: str, capsys: Capture
):
    Path("bad").write_text("secret")
    assert run(["deploy", *words]) == code
    told = capsys.readouterr().err.splitlines()
    assert line in told[-1]
    assert told[-1].startswith("neuroswarm: ")
    assert all(other.startswith("+ docker ") for other in told[:-1])


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts text on the standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_without_a_yes_nothing_runs(answer: str, type_in: Callable[[str], None], capsys: Capture):
    type_in(answer)
    assert run(["deploy", "remove"]) == 70
    told = capsys.readouterr().err
    assert "docker stack rm neuroswarm\nrun them? [y/N]" in told
    assert told.endswith("neuroswarm: not confirmed: nothing was changed\n")


@pytest.mark.parametrize(
    ("flags", "answered_by"), [([], "--yes"), (["--volumes"], "--confirm neuroswarm")]
)
def test_where_nobody_answers_the_flag_is_named(
    flags: list[str], answered_by: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in("")
    assert run(["deploy", "remove", *flags]) == 2
    assert f"add {answered_by}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "answer"), [([], "y\n"), (["--volumes"], "neuroswarm\n"), (["-y"], "")]
)
def test_a_yes_or_the_name_runs_it(
    flags: list[str], answer: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in(answer)
    assert run(["deploy", "remove", *flags]) == 69
    told = capsys.readouterr().err
    assert "+ docker stack rm neuroswarm\nneuroswarm: there is no program `docker`" in told


@pytest.mark.parametrize("verb", [["remove"], ["compose", "down"]])
@pytest.mark.parametrize("name", ["other", "", "y"])
def test_volumes_are_not_deleted_under_another_name(
    verb: list[str], name: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in(f"{name}\n\n")
    assert run(["deploy", *verb, "--volumes", "--yes"]) in (2, 70)
    assert "+ docker" not in capsys.readouterr().err


EXAMPLES = [
    line.strip()
    for command in app.registered_commands
    for line in ((command.callback and command.callback.__doc__) or "").splitlines()
    if line.strip().startswith("neuroswarm deploy ")
]


def test_every_verb_has_an_example():
    verbs = {line.split()[2] for line in EXAMPLES}
    named = {
        command.name or getattr(command.callback, "__name__", "")
        for command in app.registered_commands
    }
    assert named <= verbs


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_of_the_help_can_be_run(line: str, monkeypatch: pytest.MonkeyPatch):
    words = shlex.split(line)[1:]
    if "build" in words or "push" in words:
        monkeypatch.chdir(SOURCES)
    if "files" not in words and "--dry-run" not in words:
        words.append("--dry-run")
    assert run(words) == 0


def test_services_are_those_of_the_stack_files():
    for service in deploy_services.Service:
        assert f"\n  {service.value}:\n" in packaged("stack.yml").read_text()


def test_variables_and_defaults_are_those_of_the_stack_files():
    found = {}
    for name in STACK_FILES:
        found |= dict(VARIABLE.findall(packaged(name).read_text()))
    assert set(found) == set(STACK_VARIABLES)
    assert (found["IMAGE"], found["TOKEN_SECRET"]) == (DEFAULT_IMAGE, DEFAULT_SECRET)
    assert found["SETTINGS_VERSION"] == "1"


def test_stack_files_place_by_the_labels_that_deploy_sets():
    text = packaged("stack.yml").read_text()
    assert "node.labels.neuroswarm.skip != true" in text
    assert "node.labels.neuroswarm.tracker == true" in text


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("neuroswarm deploy ", {"init", "join", "push", "remove", "compose"}),
        ("neuroswarm deploy label --class ", {"server", "desktop", "laptop", "rpi"}),
        ("neuroswarm deploy update --roll", {"--rollback"}),
    ],
)
def test_the_shell_completes(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.setenv("_NEUROSWARM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    assert offered <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("word", ["", "-x", "two words", "a\nb"])
@pytest.mark.parametrize(
    "words",
    [
        ["label", "--skip", "--"],
        ["join", "--join-token", "SWMTKN-1-a-b", "--"],
        ["init", "--advertise"],
        ["init", "--secret"],
        ["deploy", "--image"],
        ["deploy", "--tracker-host"],
        ["remove", "--name"],
        ["logs", "--node"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_names_that_docker_would_take_for_something_else_are_refused(
    capsys: Capture, words: list[str], word: str
):
    asked = [*words, word] if words[-1] == "--" else [*words[:-1], f"{words[-1]}={word}"]
    assert run(["deploy", words[0], "--dry-run", *asked[1:]]) == 2
    assert "is no name" in " ".join(capsys.readouterr().err.split())
