"""`neuroswarm deploy` on a real engine that is in no docker swarm yet, from init to remove.

Runs only where NEUROSWARM_TEST_DOCKER_HOST names an engine that may be used for it, and
NEUROSWARM_TEST_IMAGES two images that are on it, with a comma: each is to run as a service until
it is stopped, whatever its arguments. The engine leaves its docker swarm in the end.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroswarm.cli.main import run

HOST = os.environ.get("NEUROSWARM_TEST_DOCKER_HOST", "")
IMAGES = os.environ.get("NEUROSWARM_TEST_IMAGES", "").split(",")
LEFT = ["--name", "nstest", "--resolve-image", "never", "--yes"]

STACK = """\
version: "3.8"
services:
  node:
    image: ${IMAGE}
    secrets: [token]
    volumes: ["state:/var/lib/neuroswarm"]
    stop_grace_period: 5s
    deploy:
      mode: global
      placement: {constraints: [node.labels.neuroswarm.skip != true]}
      update_config: {order: stop-first, monitor: 2s}
      labels: {tracker: "${TRACKER_HOST}"}
volumes: {state: {}}
secrets: {token: {external: true, name: "${TOKEN_SECRET}"}}
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HOST or len(IMAGES) < 2, reason="no engine to be used was named"),
]


def docker(*words: str) -> str:
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The engine that was named, in no docker swarm before and after."""
    monkeypatch.setenv("DOCKER_HOST", HOST)
    monkeypatch.chdir(tmp_path)
    assert docker("info", "--format", "{{.Swarm.LocalNodeState}}").strip() == "inactive"
    (tmp_path / "stack.yml").write_text(STACK)
    yield tmp_path
    subprocess.run(["docker", "swarm", "leave", "--force"], check=False, capture_output=True)


def deploy(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[str, list[str]]:
    """What it printed, and the docker commands that it showed; it must end well."""
    code = run(["deploy", *words])
    streams = capfd.readouterr()
    assert code == 0, streams.err
    shown = [line[2:] for line in streams.err.splitlines() if line.startswith("+ ")]
    return streams.out, shown


def test_a_fleet_from_its_beginning_to_its_end(fleet: Path, capfd: pytest.CaptureFixture[str]):
    planned, _ = deploy(capfd, "init", "--dry-run")
    printed, ran = deploy(capfd, "init", "--yes")
    commands = [line for line in planned.splitlines() if not line.startswith("#")]
    assert [line for line in commands if "docker node update" not in line] == [
        line for line in ran if "docker node" not in line
    ]
    assert "a new token, of a new swarm, is made and kept in neuroswarm-token" in printed
    assert "neuroswarm deploy join" in printed
    assert "SWMTKN-1-" in printed
    assert docker("secret", "ls", "--format", "{{.Name}}").split() == ["neuroswarm_token"]
    assert (fleet / "neuroswarm-token").stat().st_mode & 0o777 == 0o600

    printed, ran = deploy(capfd, "init", "--yes")  # once more: nothing is made twice
    assert "the secret neuroswarm_token is there already: kept" in printed
    assert not any("swarm init" in line or "secret create" in line for line in ran)

    machine = docker("info", "--format", "{{.Name}}").strip()
    deploy(capfd, "label", machine, "--class", "server", "--skip", "--yes")
    deploy(capfd, "deploy", "--file", "stack.yml", "--image", IMAGES[0], *LEFT)
    assert docker("service", "ps", "--quiet", "nstest_node") == "", "the machine is skipped"

    deploy(capfd, "label", machine, "--no-skip", "--yes")
    row = await_task(capfd, IMAGES[0])
    assert (row["machine"], row["class"]) == (machine, "server")

    printed, _ = deploy(capfd, "update", "--image", IMAGES[1], *LEFT)
    assert "to go back" in printed
    assert await_task(capfd, IMAGES[1])["error"] == ""
    deploy(capfd, "update", "--rollback", "--name", "nstest", "--yes")
    assert await_task(capfd, IMAGES[0])["error"] == ""

    deploy(capfd, "logs", "--name", "nstest", "--node", machine, "--tail", "1")
    ours = ("--quiet", "--filter", "label=com.docker.stack.namespace=nstest")
    deploy(capfd, "remove", "--name", "nstest", "--yes")
    assert docker("volume", "ls", *ours).split() == ["nstest_state"]
    await_nothing("network", "ls", *ours)
    deploy(capfd, "remove", "--name", "nstest", "--volumes", "--confirm", "nstest")
    assert docker("volume", "ls", *ours) == ""


def await_task(capfd: pytest.CaptureFixture[str], image: str) -> dict[str, str]:
    """The machine's row once its task with this image runs."""
    for _ in range(60):
        text, shown = deploy(capfd, "status", "--name", "nstest", "--json", "--no-ask")
        assert shlex.split(shown[0]) == ["docker", "node", "ls", "--quiet"]
        [row] = json.loads(text)["machines"]
        if row["task"].startswith("Running") and row["image"] == image:
            return dict(row)
        a_second_of_docker()
    raise AssertionError(f"no task with {image} runs: {row}")


def await_nothing(*words: str) -> None:
    """Wait until docker lists nothing."""
    for _ in range(60):
        if not docker(*words):
            return
        a_second_of_docker()
    raise AssertionError(f"still there: {docker(*words)}")


def a_second_of_docker() -> None:
    """Follow what happens on the engine for a second."""
    subprocess.run(["docker", "events", "--until", "1s"], check=False, capture_output=True)
