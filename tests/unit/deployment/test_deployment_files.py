"""The image, stack and compose files: whole, and of what the program really knows."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from typing import Any

import pytest
import yaml

from neuroswarm.cli import settings
from neuroswarm.cli.node import gather
from neuroswarm.cli.ports import (
    DEFAULT_HEARTBEAT_PORT,
    DEFAULT_HTTP_PORT,
    DEFAULT_TRACKER_PORT,
    GRPC_PORT_OFFSET,
)
from neuroswarm.cli.signals import LEAVE_DEADLINE_S, STOP_DEADLINE_S

FOLDER = files("neuroswarm.deployment") / "files"
STACKS = ("stack.yml", "stack-overlay.yml")
ALL = (*STACKS, "compose.yml")
GIVEN = {"TRACKER_HOST": "10.0.0.5"}
_VARIABLE = re.compile(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def fill_in(text: str, given: dict[str, str]) -> str:
    """Put values in place of variables, as Docker does; KeyError for one that is required."""

    def value(match: re.Match[str]) -> str:
        name, kind, word = match.groups()
        if name in given:
            return given[name]
        if kind == ":-":
            return str(word)
        raise KeyError(f"{name}: {word}")

    return _VARIABLE.sub(value, text)


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(fill_in(text_of(name), GIVEN))
    return document


def services(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load(name)["services"]
    return found


def all_services() -> list[tuple[str, str, dict[str, Any]]]:
    return [(file, name, service) for file in ALL for name, service in services(file).items()]


def environment(service: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = service["environment"]
    return found


@pytest.mark.parametrize("name", ALL)
def test_every_variable_is_known_to_the_program(name: str):
    for service in services(name).values():
        given = {k: v for k, v in environment(service).items() if k != "NEUROSWARM_CONFIG"}
        settings.from_environment(given)  # ConfigError names an unknown one


def test_variables_with_nothing_to_say_are_caught():
    with pytest.raises(settings.ConfigError, match="NEUROSWARM_TRACKERR is no setting"):
        settings.from_environment({"NEUROSWARM_TRACKERR": "x"})


@pytest.mark.parametrize("name", ALL)
def test_node_takes_its_settings_from_the_environment(name: str, free_ports: dict[str, str]):
    given = environment(services(name)["node"]) | free_ports
    del given["NEUROSWARM_CONFIG"]
    config = gather({}, given)
    hints = (*config.network.trackers, *config.network.peers)
    assert (
        hints
        == (
            {
                "stack.yml": ("http://10.0.0.5:7100",),
                "stack-overlay.yml": ("dns://tasks.node:7101",),
                "compose.yml": ("dns://node:7101",),
            }[name]
        )
    )


@pytest.fixture
def free_ports() -> dict[str, str]:
    names = ("PORT", "GRPC_PORT", "HEARTBEAT_PORT")
    return {f"NEUROSWARM_{name}": "0" for name in names}


@pytest.mark.parametrize("name", ALL)
def test_ports_are_the_defaults(name: str):
    node = environment(services(name)["node"])
    assert int(node["NEUROSWARM_PORT"]) == DEFAULT_HTTP_PORT
    assert int(node["NEUROSWARM_GRPC_PORT"]) == DEFAULT_HTTP_PORT + GRPC_PORT_OFFSET
    assert int(node["NEUROSWARM_HEARTBEAT_PORT"]) == DEFAULT_HEARTBEAT_PORT
    exposed = re.search(r"^EXPOSE (.*)$", text_of("Dockerfile"), re.MULTILINE)
    assert exposed is not None
    wanted = [DEFAULT_TRACKER_PORT, DEFAULT_HTTP_PORT, DEFAULT_HTTP_PORT + GRPC_PORT_OFFSET]
    assert exposed[1].split() == [*map(str, wanted), f"{DEFAULT_HEARTBEAT_PORT}/udp"]


def test_tracker_is_where_nodes_look_for_it():
    both = services("stack.yml")
    port = environment(both["tracker"])["NEUROSWARM_PORT"]
    assert int(port) == DEFAULT_TRACKER_PORT
    assert environment(both["node"])["NEUROSWARM_TRACKER"] == f"http://10.0.0.5:{port}"


def test_the_address_is_the_one_thing_to_say():
    required = {
        file: [m[1] for m in _VARIABLE.finditer(text_of(file)) if m[2] == ":?"] for file in ALL
    }
    assert required == {"stack.yml": ["TRACKER_HOST"], "stack-overlay.yml": [], "compose.yml": []}
    assert not [m[0] for file in ALL for m in _VARIABLE.finditer(text_of(file)) if not m[2]]


@pytest.mark.parametrize("name", ALL)
def test_what_is_required_stands_alone(name: str):
    """With a second variable in the same text the docker client takes a missing one for empty."""
    lines = [line for line in text_of(name).splitlines() if ":?" in line]
    assert [len(_VARIABLE.findall(line)) for line in lines] == [1] * len(lines)


@pytest.mark.parametrize("name", ALL)
def test_head_of_the_file_explains_every_variable(name: str):
    head = text_of(name).split("services:")[0]
    used = {match[1] for match in _VARIABLE.finditer(text_of(name))}
    assert used
    assert not [variable for variable in used if not re.search(rf"\b{variable}\b", head)]


@pytest.mark.parametrize("name", STACKS)
def test_node_of_a_stack_is_a_careful_guest(name: str):
    node = services(name)["node"]
    assert node["init"] is True
    assert node["deploy"]["mode"] == "global"
    assert node["deploy"]["update_config"]["order"] == "stop-first"
    assert node["deploy"]["restart_policy"]["condition"] == "any"
    assert "node.platform.arch != armv7l" in node["deploy"]["placement"]["constraints"]
    assert node["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert "ports" not in node, "datagrams through the routing mesh vanish"
    assert node["volumes"] == ["node-state:/var/lib/neuroswarm"]
    assert environment(node)["NEUROSWARM_STATE_DIR"].startswith("/var/lib/neuroswarm/")


def test_host_stack_uses_the_network_of_its_hosts():
    stack = load("stack.yml")
    assert stack["networks"] == {"hostnet": {"external": True, "name": "host"}}
    assert all(service["networks"] == ["hostnet"] for service in stack["services"].values())


def test_overlay_stack_has_no_virtual_address():
    stack = load("stack-overlay.yml")
    assert stack["services"]["node"]["deploy"]["endpoint_mode"] == "dnsrr"
    assert stack["networks"]["peers"]["driver"] == "overlay"
    options = stack["networks"]["peers"]["driver_opts"]
    assert int(options["com.docker.network.driver.mtu"]) <= 1420


@pytest.mark.parametrize("name", STACKS)
def test_token_comes_as_a_secret(name: str):
    stack = load(name)
    for service in stack["services"].values():
        (secret,) = service["secrets"]
        assert environment(service)["NEUROSWARM_TOKEN_FILE"] == f"/run/secrets/{secret}"
        assert stack["secrets"][secret]["external"] is True


def test_time_to_stop_is_enough():
    for _, name, service in all_services():
        if name == "node":
            seconds = int(service["stop_grace_period"].removesuffix("s"))
            assert seconds > max(LEAVE_DEADLINE_S, STOP_DEADLINE_S)


def test_health_is_asked_patiently():
    asked = [service["healthcheck"] for _, _, service in all_services() if "healthcheck" in service]
    assert len(asked) == 3
    for check in asked:
        assert check["test"] == ["CMD", "neuroswarm", "health", "--live"]
        assert check["start_period"] == "10m"
        assert check["retries"] >= 5


def test_dockerfile_speaks_in_exec_form():
    lines = text_of("Dockerfile").splitlines()
    words = {line.split()[0]: line.partition(" ")[2] for line in lines if line[:1].isupper()}
    assert json.loads(words["ENTRYPOINT"]) == ["neuroswarm"]
    assert json.loads(words["CMD"]) == ["node"]
    health = next(line for line in lines if line.strip().startswith("CMD ["))
    assert json.loads(health.strip().removeprefix("CMD ")) == ["neuroswarm", "health", "--live"]
    assert words["USER"] == "10001:10001"


def test_torch_has_a_layer_below_everything_that_changes():
    steps = text_of("Dockerfile").partition("# -- the image")[2]
    torch = steps.index("${TORCH_OPTIONS}")
    libraries = steps.index("--requirement")
    package = steps.index("COPY --from=source /install")
    assert torch < libraries < package
    assert "COPY ." not in steps, "the sources stay out of the image"


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_each_architecture_has_its_build_of_torch(architecture: str):
    pins = re.findall(
        r"^torch==(\d+)\.(\d+)\.\d+$", text_of(f"constraints-{architecture}.txt"), re.M
    )
    assert len(pins) == 1
    if architecture == "arm64":
        assert tuple(map(int, pins[0])) < (2, 10), "later builds die on a Raspberry Pi 4"


def test_settings_file_is_one():
    name = "node.toml"
    assert tomllib.loads(text_of(name)) == {}
    example = re.sub(r"^# (?=\[|\w+ = )", "", text_of(name), flags=re.MULTILINE)
    layer = tomllib.loads(example)
    assert set(layer) == {"training", "resources"}
    settings.resolve(
        [
            settings.from_values(
                {f"{s}.{k}": v for s, keys in layer.items() for k, v in keys.items()}, name
            )
        ]
    )


def test_context_holds_only_what_the_wheel_is_made_of():
    lines = [line for line in text_of(".dockerignore").splitlines() if line[:1] not in "#"]
    assert lines[0] == "*"
    assert {"!pyproject.toml", "!README.md", "!LICENSE", "!neuroswarm"} <= set(lines)
