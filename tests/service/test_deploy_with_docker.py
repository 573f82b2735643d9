"""`neuroswarm deploy` with the real docker client, and no engine: every command is one it knows."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from neuroswarm.cli.main import run
from neuroswarm.deployment import compose_plan, image_plan, names, service_plan, swarm_plan
from neuroswarm.deployment.command import Command, Fed, Output, Step, UntilEmpty, docker
from neuroswarm.deployment.engine import Engine
from neuroswarm.deployment.image_plan import Recipe
from neuroswarm.deployment.service_plan import LogWishes, Pace
from neuroswarm.errors import ConfigError, DeployError, DockerUnavailable

NOWHERE = "unix:///nowhere/docker.sock"
RECIPE = Recipe("r.lan:5000/ns:1", Path("src"), Path("Dockerfile"), build_arguments=("A=b",))
# Clients before 25 want the version.
STACK_FILE = "version: '3.8'\nservices: {node: {image: 'a:1', deploy: {mode: global}}}\n"

pytestmark = pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client here")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """That of this process, with an engine that is not there."""
    import os

    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    return dict(os.environ)


def has_plugin(name: str) -> bool:
    """Whether the client has the plugin."""
    done = subprocess.run(["docker", name, "version"], capture_output=True, check=False)
    return done.returncode == 0


def with_words(step: Step) -> Iterator[Command]:
    """The commands of a step with a word in place of what others print, and those others."""
    if isinstance(step, UntilEmpty):
        yield from with_words(step.command)
        return
    for word in step.words:
        if isinstance(word, Output):
            yield from with_words(word.command)
    yield replace(
        step, words=tuple("x" if isinstance(word, Output) else word for word in step.words)
    )


def plans(stack_file: Path) -> list[Step]:
    wishes = LogWishes(follow=True, since="10m", tail="5", node="pi01", with_times=True)
    return [
        swarm_plan.READ_ENGINE,
        swarm_plan.READ_SECRETS,
        swarm_plan.READ_JOIN_TOKEN,
        *swarm_plan.plan_init("10.0.0.5", is_manager=False),
        *swarm_plan.plan_secret("t", Fed("text", "< file")),
        *swarm_plan.plan_tracker(),
        *swarm_plan.plan_join("10.0.0.5", "SWMTKN-1-x", "10.0.0.6"),
        *swarm_plan.plan_label(["a"], {"neuroswarm.skip": "true"}),
        *swarm_plan.plan_remove("ns", with_volumes=True),
        *service_plan.plan_deploy(
            "ns", [stack_file], {"IMAGE": "a:1"}, resolve_image="never", with_registry_auth=True
        ),
        service_plan.plan_nodes(),
        service_plan.plan_services("ns"),
        service_plan.plan_tasks("ns"),
        *service_plan.plan_update(
            ["ns_node"], "a:2", Pace(2, "5s"), resolve_image=False, is_detached=True
        ),
        *service_plan.plan_rollback(["ns_node"], is_detached=True),
        *service_plan.plan_logs("ns_node", wishes),
    ]


def require_known(engine: Engine, steps: list[Step]) -> None:
    """Each command gets as far as looking for its engine."""
    commands = [command for step in steps for command in with_words(step)]
    for command in commands:
        with pytest.raises(DockerUnavailable, match="Cannot connect to the Docker daemon"):
            engine.read(command)


def test_the_client_knows_every_command(environment: Mapping[str, str], tmp_path: Path):
    (tmp_path / "stack.yml").write_text(STACK_FILE)
    require_known(Engine(environment, lambda _: None), plans(tmp_path / "stack.yml"))


def test_the_client_would_say_so_if_it_did_not(environment: Mapping[str, str]):
    with pytest.raises(DeployError, match="unknown flag: --no-such-flag"):
        Engine(environment, lambda _: None).read(docker("node", "ls", "--no-such-flag"))


def test_plugins_know_their_commands_or_are_named_as_missing(
    environment: Mapping[str, str], tmp_path: Path
):
    (tmp_path / "compose.yml").write_text("services: {node: {image: 'a:1'}}\n")
    file, engine = tmp_path / "compose.yml", Engine(environment, lambda _: None)
    by_plugin: dict[str, list[Command]] = {
        "buildx": [
            *image_plan.plan_build(replace(RECIPE, platforms=("linux/amd64",)), load=True),
            *image_plan.plan_candidate(RECIPE),
        ],
        "compose": [
            *compose_plan.plan_up(file, {"IMAGE": "a:1"}, 2, builds=False),
            *compose_plan.plan_up(file, {"IMAGE": "a:1"}, 2, builds=True),
            *compose_plan.plan_down(file, with_volumes=True),
        ],
    }
    for plugin, commands in by_plugin.items():
        said = "Cannot connect" if has_plugin(plugin) else f"no plugin {plugin}"
        for command in commands:
            with pytest.raises(DockerUnavailable, match=said):
                engine.read(command)


IMAGES = (
    *("a", "me/a:0.1.0", "r.lan:5000/a/b:1", "[fd00::5]:5000/a:1", "Registry/a", "a__b.c--d:1_x"),
    *("A", "a/B", "a;b", "http://a.b/c:1", "a:", "a:-1", "a//b", "a@sha256:00"),
)
DURATIONS = ("60s", "1h30m", "1.5m", "0", "500ms", "60", "s", "1d", "5 s")


def takes(check: Callable[[str], str], text: str) -> bool:
    """Whether a check lets it pass."""
    try:
        return check(text) == text
    except ConfigError:
        return False


def test_the_client_takes_the_images_and_durations_that_are_taken_here(
    environment: Mapping[str, str],
):
    engine = Engine(environment, lambda _: None)
    asked = [(names.require_image, docker("pull", image), image) for image in IMAGES]
    for text in DURATIONS:
        update = docker("service", "update", "--update-delay", text, "x")
        asked.append((partial(names.require_duration, "--delay"), update, text))
    for check, command, text in asked:
        with pytest.raises(DeployError) as caught:
            engine.read(command)
        said = str(caught.value)
        assert ("Cannot connect" in said) is takes(check, text), said
        assert "Cannot connect" in said or "invalid" in said, said


@pytest.mark.parametrize(
    "words",
    [
        ["init", "--yes"],
        ["join", "10.0.0.5", "--join-token", "SWMTKN-1-x", "--yes"],
        ["label", "a", "--skip", "--yes"],
        ["deploy", "--tracker-host", "10.0.0.5", "--yes"],
        ["status"],
        ["logs"],
        ["update", "--image", "a:1", "--yes"],
        ["remove", "--yes"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("environment")
def test_without_an_engine_each_verb_says_so_and_ends_with_69(
    words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["deploy", *words]) == 69
    streams = capfd.readouterr()
    told = streams.err.splitlines()
    assert told[0].startswith("+ ")
    assert "Cannot connect to the Docker daemon at unix:///nowhere" in told[-1]
    assert "start it (`sudo systemctl start docker`)" in told[-1]
    assert list(tmp_path.iterdir()) == [], "nothing is made before docker answers"


@pytest.mark.usefixtures("environment")
def test_a_context_that_is_not_there_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONTEXT", "no-such-context")
    assert run(["deploy", "status"]) == 69
    assert 'context "no-such-context"' in capfd.readouterr().err
