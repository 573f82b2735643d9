"""What may be asked of a demo, and the commands that follow from it."""

import itertools
import json
from pathlib import Path

import pytest

from neuroswarm.cli.demo import make_launch
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.demo.hostile import make_hostile_node
from neuroswarm.demo.launch import (
    SETTINGS,
    Ports,
    choose_ports,
    hostile_command,
    nested,
    node_command,
)
from neuroswarm.demo.scenario import Wishes
from neuroswarm.errors import ConfigError

PORTS = Ports(20001, 20002, 20003)


@pytest.mark.parametrize(
    ("wishes", "line"),
    [
        ({"peers": 1}, r"peers out of range: 1 \(2 to 16\)"),
        ({"peers": 17}, "peers out of range: 17"),
        ({"peers": 3, "num_hostile": 1}, "a swarm bears a quarter"),
        ({"num_killed": 4}, "peers to kill out of range: 4"),
        ({"minutes": 0}, "minutes out of range: 0"),
        ({"minutes": 1, "num_killed": 1}, "minutes out of range: 1"),
    ],
    ids=str,
)
def test_impossible_wishes_are_refused(wishes: dict[str, int], line: str):
    with pytest.raises(ConfigError, match=line):
        Wishes(**wishes)


def test_own_settings_win_over_the_demos_and_wrong_ones_are_named():
    launch = make_launch(["training.dim=64"], None, {})
    assert launch.config.training.dim == 64
    assert launch.config.diloco.inner_steps == SETTINGS["diloco.inner_steps"]
    with pytest.raises(ConfigError, match=r"did you mean 'training.dim'"):
        make_launch(["training.dm=64"], None, {})


def test_environment_of_the_caller_does_not_reach_the_nodes(tmp_path: Path):
    around = {"PATH": "/bin", "NEUROSWARM_TRACKER": "http://elsewhere:1", "NEUROSWARM_TOKEN": "x"}
    launch = make_launch([], None, around)
    command = node_command(launch, tmp_path, PORTS, [])
    assert command.environment == {"PATH": "/bin", "NEUROSWARM_TOKEN": launch.token}
    assert launch.token not in " ".join(command.arguments)
    assert launch.token not in repr(launch)


def test_every_demo_has_a_token_of_its_own():
    assert make_launch([], None, {}).token != make_launch([], None, {}).token


def test_nodes_get_ports_trackers_settings_and_end(tmp_path: Path):
    launch = make_launch([], tmp_path, {})
    words = node_command(launch, tmp_path / "p", PORTS, ["http://a:1", "http://b:2"], 5).arguments
    flags = list(itertools.pairwise(words))
    assert ("--port", "20001") in flags
    assert ("--tracker", "http://b:2") in flags
    assert ("--tokens", "5") in flags
    assert ("--set", "diloco.inner_steps=50") in flags
    assert ("--set", f"data.path={tmp_path}") in flags


def test_hostile_peer_understands_its_task(tmp_path: Path):
    launch = make_launch([], tmp_path, {})
    command = hostile_command(launch, tmp_path / "p", PORTS, ["http://a:1"])
    assert launch.token not in " ".join(command.arguments)
    node = make_hostile_node(**json.loads(command.input))
    config = node.config
    assert (config.network.port, config.network.grpc_port) == (20001, 20002)
    assert config.training == launch.config.training
    assert config.data.path == tmp_path


def test_settings_by_path_become_sections():
    settings = nested({"training.dim": 64, "training.lr": 0.1, "state_dir": "x"})
    assert settings == {"training": {"dim": 64, "lr": 0.1}, "state_dir": "x"}
    assert SwarmNodeConfig(**settings).training.dim == 64


def test_ports_are_different_and_free():
    ports = choose_ports(5)
    numbers = [n for p in ports for n in (p.http, p.grpc, p.heartbeat)]
    assert len(set(numbers)) == 15
