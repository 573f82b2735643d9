"""Which docker commands each verb plans, and what none of them may hold."""

import re
from itertools import chain
from pathlib import Path

import pytest

from neuroswarm.deployment import compose_plan, image_plan, service_plan, swarm_plan
from neuroswarm.deployment.command import Command, Fed, Output, UntilEmpty
from neuroswarm.deployment.image_plan import Recipe
from neuroswarm.deployment.labels import NodeClass, choose_labels
from neuroswarm.deployment.service_plan import LogWishes, Pace
from neuroswarm.deployment.variables import (
    DEFAULT_IMAGE,
    DEFAULT_STACK,
    STACK_VARIABLES,
    choose_variables,
    join_given,
    read_variables,
)
from neuroswarm.errors import ConfigError, DockerUnavailable

OVERLAY = ("IMAGE", "TOKEN_SECRET", "SETTINGS_VERSION", "MTU")
"""What stack-overlay.yml names."""
RECIPE = Recipe("registry.lan:5000/neuroswarm:1", Path("src"), Path("Dockerfile"))


def lines(steps: list[Command]) -> list[str]:
    return [str(step) for step in steps]


def test_a_manager_is_not_made_a_manager_again():
    assert lines(swarm_plan.plan_init("10.0.0.5", is_manager=False)) == [
        "docker swarm init --advertise-addr 10.0.0.5"
    ]
    assert swarm_plan.plan_init("10.0.0.5", is_manager=True) == []


def test_a_worker_cannot_begin_a_swarm():
    swarm_plan.require_no_worker(is_active=False, is_manager=False)
    swarm_plan.require_no_worker(is_active=True, is_manager=True)
    with pytest.raises(DockerUnavailable, match="worker of a docker swarm already"):
        swarm_plan.require_no_worker(is_active=True, is_manager=False)


def test_the_token_is_in_no_argument():
    [command] = swarm_plan.plan_secret("neuroswarm_token", Fed("the-token", "< file"))
    assert "the-token" not in chain(command.words, command.variables.values())
    assert command.words[-1] == "-"
    assert command.fed is not None
    assert command.fed.text == "the-token"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10.0.0.5", "10.0.0.5:2377"),
        ("10.0.0.5:2400", "10.0.0.5:2400"),
        ("fd00::5", "[fd00::5]:2377"),
        ("[fd00::5]", "[fd00::5]:2377"),
        ("[fd00::5]:2400", "[fd00::5]:2400"),
        ("manager.lan", "manager.lan:2377"),
    ],
)
def test_a_manager_without_a_port_has_dockers_own(written: str, meant: str):
    assert swarm_plan.with_port(written) == meant


def test_a_token_of_neuroswarm_is_no_join_token():
    with pytest.raises(ConfigError, match="begins with SWMTKN-"):
        swarm_plan.require_join_token("nst1-abc")


def test_labels_are_switched_off_and_never_removed():
    labels = choose_labels(NodeClass.RPI, is_skipped=False, has_tracker=None)
    assert lines(swarm_plan.plan_label(["pi01", "pi 02"], labels)) == [
        (
            "docker node update --label-add neuroswarm.class=rpi --label-add neuroswarm.skip=false "
            "pi01"
        ),
        (
            "docker node update --label-add neuroswarm.class=rpi --label-add neuroswarm.skip=false "
            "'pi 02'"
        ),
    ]
    assert choose_labels(None, is_skipped=None, has_tracker=None) == {}


def test_removing_touches_no_volume_unless_asked():
    assert list(map(str, swarm_plan.plan_remove("ns", with_volumes=False))) == [
        "docker stack rm ns"
    ]


def test_volumes_go_only_after_the_containers_that_use_them():
    first, wait, last = swarm_plan.plan_remove("ns", with_volumes=True)
    assert str(first) == "docker stack rm ns"
    assert isinstance(wait, UntilEmpty)
    assert "docker ps --all" in str(wait)
    assert str(last).startswith("docker volume rm $(docker volume ls")


def test_all_that_counts_of_the_environment_is_named_in_the_command():
    given, around = {"IMAGE": "a:1", "MTU": None}, {"IMAGE": "b", "MTU": "1280", "HOME": "/root"}
    used = choose_variables(given, around, OVERLAY)
    [command] = service_plan.plan_deploy("ns", [Path("s.yml")], used, resolve_image="never")
    assert str(command) == (
        "env IMAGE=a:1 TOKEN_SECRET=neuroswarm_token SETTINGS_VERSION=1 MTU=1280 "
        "docker stack deploy --compose-file s.yml --resolve-image never ns"
    )


def test_files_of_a_stack_are_joined_in_their_order():
    files = [Path("stack.yml"), Path("accept.yml")]
    [command] = service_plan.plan_deploy("ns", files, {}, resolve_image="always")
    assert "--compose-file stack.yml --compose-file accept.yml" in str(command)


def test_a_file_gets_the_variables_that_it_names_and_no_others():
    given = read_variables(["OTHER=a=b"])
    assert choose_variables(given, {"NODE_PORT": "x"}, ("OTHER",)) == {"OTHER": "a=b"}
    with pytest.raises(ConfigError, match=r"no variable of the stack files: OTHER \(there are: "):
        choose_variables(given, {}, OVERLAY)


@pytest.mark.parametrize("wrong", ["MTU", "=1", "A B=1", "é=1", "-x=1"])
def test_what_assigns_nothing_is_no_variable(wrong: str):
    with pytest.raises(ConfigError, match="write NAME=VALUE"):
        read_variables([wrong])


def test_one_variable_has_one_source():
    with pytest.raises(ConfigError, match="MTU is given twice: '1' and '2'"):
        read_variables(["MTU=1", "MTU=2"])
    assert join_given({"IMAGE": None}, {"IMAGE": "a"}) == {"IMAGE": "a"}
    with pytest.raises(ConfigError, match="IMAGE is given twice: --image b and --variable IMAGE=a"):
        join_given({"IMAGE": "b"}, {"IMAGE": "a"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((port, value) for port in ("NODE_PORT", "GRPC_PORT") for value in ("0", "65536", "7 1")),
        ("HEARTBEAT_PORT", "-1"),
        ("MTU", "67"),
        ("TRACKER_HOST", "http://a"),
        ("IMAGE", "A B"),
        ("TOKEN_SECRET", "x" * 65),
        ("SETTINGS_VERSION", "-1"),
    ],
)
def test_values_that_cannot_work_are_refused_wherever_they_are_from(name: str, value: str):
    for given, around in (({name: value}, {}), ({}, {name: value})):
        with pytest.raises(ConfigError, match=re.escape(repr(value))):
            choose_variables(given, around, STACK_VARIABLES)


def test_one_port_is_not_given_twice():
    given = {"NODE_PORT": "7201", "GRPC_PORT": "7201"}
    with pytest.raises(ConfigError, match="NODE_PORT and GRPC_PORT are one: 7201"):
        choose_variables(given, {}, STACK_VARIABLES)


def test_an_empty_variable_of_the_environment_is_none():
    assert choose_variables({}, {"IMAGE": ""}, ("IMAGE",)) == {"IMAGE": DEFAULT_IMAGE}


def test_without_a_host_the_tracker_is_where_its_label_is():
    assert "TRACKER_HOST" not in choose_variables({}, {}, OVERLAY)
    line = str(choose_variables({}, {}, STACK_VARIABLES)["TRACKER_HOST"])
    assert "{{.Status.Addr}}" in line
    assert "node.label=neuroswarm.tracker=true" in line


def test_an_update_stops_a_node_before_its_successor_starts():
    steps = service_plan.plan_update(
        ["ns_node", "ns_tracker"], "a:2", Pace(3, "5s"), resolve_image=False, is_detached=True
    )
    assert lines(steps)[0] == (
        "docker service update --image a:2 --update-order stop-first --update-parallelism 3 "
        "--update-delay 5s --no-resolve-image --detach ns_node"
    )
    assert lines(steps)[1].endswith("ns_tracker")


def test_logs_of_one_machine_are_those_of_its_task():
    [command] = service_plan.plan_logs("ns_node", LogWishes(follow=True, tail="5", node="pi01"))
    assert command.words[:5] == ("service", "logs", "--follow", "--tail", "5")
    assert isinstance(command.words[-1], Output)
    assert "--filter node=pi01" in str(command.words[-1])


def test_an_image_is_for_both_kinds_of_processors_unless_told_otherwise():
    [command] = image_plan.plan_build(RECIPE, load=False)
    assert "--platform linux/amd64,linux/arm64" in str(command)
    assert "--push" not in command.words


def test_only_one_platform_can_be_loaded():
    with pytest.raises(ConfigError, match="--load takes one platform"):
        image_plan.plan_build(RECIPE, load=True)


def test_what_is_pushed_gets_the_tag_that_nodes_pull_last():
    [building] = image_plan.plan_candidate(RECIPE)
    [publishing] = image_plan.plan_publish(RECIPE.image, image_plan.candidate(RECIPE.image))
    assert "--tag registry.lan:5000/neuroswarm:1-candidate" in str(building)
    assert f"--tag {RECIPE.image}-candidate" in str(building)
    assert f"--tag {RECIPE.image} {RECIPE.image}-candidate" in str(publishing)


@pytest.mark.parametrize("image", ["neuroswarm", "registry.lan:5000/neuroswarm", "a@sha256:00"])
def test_an_image_without_a_tag_is_not_pushed(image: str):
    with pytest.raises(ConfigError, match="write REGISTRY/NAME:TAG"):
        image_plan.candidate(image)


def test_platforms_are_read_once_each():
    read = image_plan.read_platforms("linux/arm64, linux/amd64,linux/arm64")
    assert read == ("linux/arm64", "linux/amd64")
    for wrong in ("", "arm64", "linux/amd64;linux/arm64"):
        with pytest.raises(ConfigError, match="no platforms"):
            image_plan.read_platforms(wrong)


def test_compose_builds_only_what_it_is_told_to():
    [plain] = compose_plan.plan_up(Path("c.yml"), {}, 4, builds=False)
    [building] = compose_plan.plan_up(Path("c.yml"), {"CONTEXT": "/src"}, 4, builds=True)
    assert "--scale node=4 --no-build" in str(plain)
    assert building.variables == {"CONTEXT": "/src"}
    assert building.words[-1] == "--build"


def test_a_machine_may_have_the_stack_and_compose_without_sharing_volumes():
    [command] = compose_plan.plan_down(Path("c.yml"), with_volumes=True)
    assert command.words[:3] == ("compose", "--project-name", compose_plan.PROJECT)
    assert compose_plan.PROJECT != DEFAULT_STACK
