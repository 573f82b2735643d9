"""Settings merge: flags over environment over file over defaults, with their origin."""

import logging
from pathlib import Path

import pytest

from neuroswarm.cli.main import run
from neuroswarm.cli.node import gather, read_layers, say_how_to_find
from neuroswarm.cli.settings import (
    NOT_SETTINGS,
    PREFIX,
    SHORT_NAMES,
    Layer,
    from_assignments,
    from_environment,
    from_file,
    from_flags,
    resolve,
    setting_paths,
)
from neuroswarm.discovery.peers_file import PEERS_FILE, Acquaintance, encode_acquaintances
from neuroswarm.errors import ConfigError
from neuroswarm.values import Endpoint, NodeId


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text("krum_f = 1\n[diloco]\ninner_steps = 100\nouter_lr = 0.5\n")
    return path


def test_each_layer_wins_over_the_one_before(file: Path):
    layers = [
        from_file(file),
        from_environment({"NEUROSWARM_DILOCO_OUTER_LR": "0.6", "NEUROSWARM_NAME": "env"}),
        from_flags({"name": "flag"}),
    ]
    merged = resolve(layers)
    assert merged.config.diloco.inner_steps == 100
    assert merged.config.diloco.outer_lr == 0.6
    assert merged.config.network.name == "flag"
    assert merged.config.aggregation.krum_f == 1
    assert dict(merged.origins) == {
        "aggregation.krum_f": str(file),
        "diloco.inner_steps": str(file),
        "diloco.outer_lr": "NEUROSWARM_DILOCO_OUTER_LR",
        "network.name": "--name",
    }


def test_asked_tells_a_default_from_a_choice_of_the_same_value():
    merged = resolve([from_assignments(["network.port=7101"])])
    assert merged.asked("network.port") == 7101
    assert merged.asked("heartbeat.port") is None
    assert merged.config.heartbeat.port == 9999


def test_flags_that_were_not_given_set_nothing():
    unset = {"name": None, "fresh": False, "tracker": [], "peer": ()}
    layer = from_flags({"port": 0, "rounds": 3, **unset})
    assert dict(layer.values) == {"network.port": 0, "run.rounds": 3}


@pytest.mark.parametrize(
    ("variable", "path"),
    [
        ("NEUROSWARM_HEARTBEAT_INTERVAL", "heartbeat.interval_s"),
        ("NEUROSWARM_HEARTBEAT_INTERVAL_S", "heartbeat.interval_s"),
        ("NEUROSWARM_MINUTES", "run.minutes"),
        ("NEUROSWARM_RUN_MINUTES", "run.minutes"),
    ],
)
def test_variables_have_long_flat_and_short_names(variable: str, path: str):
    assert dict(from_environment({variable: "2.5"}).values) == {path: "2.5"}


def test_environment_converts_text():
    layer = from_environment(
        {
            "NEUROSWARM_TRACKER": "http://a:1,http://b:2",
            "NEUROSWARM_RUN_TRAINING": "false",
            "NEUROSWARM_DATA": "/texts",
            "NEUROSWARM_TOKEN": "not a setting",
            "NEUROSWARM_UNTIL_LOSS": "",
            "OTHER": "ignored",
        }
    )
    config = resolve([layer]).config
    assert config.network.trackers == ("http://a:1", "http://b:2")
    assert config.run.training is False
    assert config.data.path == Path("/texts")
    assert config.run.until_loss is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NEUROSWARM_PROT": "1"}, "NEUROSWARM_PROT is no setting; did you mean NEUROSWARM_PORT?"),
        ({"NEUROSWARM_QQQQQQ": "1"}, "NEUROSWARM_QQQQQQ is no setting; see docs/configuration.md"),
        (
            {"NEUROSWARM_PORT": "1", "NEUROSWARM_NETWORK_PORT": "2"},
            "NEUROSWARM_NETWORK_PORT and NEUROSWARM_PORT set the same thing",
        ),
    ],
    ids=["typo", "nonsense", "twice"],
)
def test_bad_variable_is_named(environment: dict[str, str], message: str):
    with pytest.raises(ConfigError) as caught:
        from_environment(environment)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[diloco]\ninner_stps = 1", "unknown setting 'diloco.inner_stps'; did you mean 'diloco."),
        ("inner = 1", "unknown setting 'inner'"),
        ("diloco = 3", "diloco: 3 is not a table of settings"),
        ("[diloco", "is not TOML"),
        ("krum_f = 1\n[aggregation]\nkrum_f = 2", "are the same setting"),
    ],
)
def test_bad_file_is_named_with_its_fault(tmp_path: Path, text: str, message: str):
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        from_file(path)
    assert message in str(caught.value)


def test_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.toml: No such file"):
        from_file(tmp_path / "nothing.toml")


@pytest.mark.parametrize("layer", ["environment", "flag", "assignment"])
def test_bad_value_names_who_set_it(layer: str):
    layers = {
        "environment": (from_environment({"NEUROSWARM_PORT": "x"}), "NEUROSWARM_PORT"),
        "flag": (from_flags({"port": 70000}), "--port"),
        "assignment": (from_assignments(["network.port=-1"]), "--set"),
    }
    values, origin = layers[layer]
    with pytest.raises(ConfigError, match=rf"^network\.port: .*, set by {origin}$"):
        resolve([values])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("diloco.inner_steps", "write --set section.key=value"),
        ("diloco.inner_stps=3", "did you mean 'diloco.inner_steps'?"),
        ("diloco=3", "'diloco' is a section; write diloco.key=value"),
    ],
)
def test_bad_assignment_is_an_error(assignment: str, message: str):
    with pytest.raises(ConfigError) as caught:
        from_assignments([assignment])
    assert message in str(caught.value)


def test_the_later_of_two_assignments_holds():
    assert from_assignments(["run.rounds=1", "run.rounds=2"]).values == {"run.rounds": "2"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"port": 7200}, "--port and --set"),
        ({"rounds": 5}, "--rounds and --set"),
        ({"http_open": True}, "--http-open and --set"),
        ({"no_lan": True}, "--set and --no-lan"),
        ({"only_on_mains": True}, "--set and --only-on-mains"),
    ],
)
def test_two_flags_for_one_setting_are_an_error(flags: dict[str, object], said: str):
    assignments = [
        "network.port=7200", "run.rounds=6", "network.http_open=false", "network.lan=true",
        "guest.only_on_mains=false",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=f"{said} set the same thing: keep one"):
        read_layers({**flags, "assignments": assignments}, {})


def test_a_wrong_item_of_a_list_names_who_set_it():
    layer = Layer({"network.peers": [1]}, {"network.peers": "node.toml"})
    with pytest.raises(ConfigError, match=r"^network\.peers\.0: .*, set by node\.toml$"):
        resolve([layer])


def test_assignments_take_flat_names():
    assert dict(from_assignments(["krum_f = 2"]).values) == {"aggregation.krum_f": "2"}


def test_short_names_point_at_settings():
    assert set(SHORT_NAMES.values()) <= setting_paths()
    assert not {PREFIX + name.upper() for name in SHORT_NAMES} & NOT_SETTINGS


def test_node_flags_become_settings_with_ports_that_are_free(file: Path):
    config = gather(
        {
            "config": file,
            "host": "127.0.0.1",
            "port": 0,
            "heartbeat_port": 0,
            "no_training": True,
            "model": "rwkv7",
            "tracker": ["http://a:1"],
            "assignments": ["diloco.inner_steps=7"],
        },
        {"NEUROSWARM_DILOCO_INNER_STEPS": "8", "NEUROSWARM_ROUNDS": "3"},
    )
    assert config.network.trackers == ("http://a:1",)
    assert (config.network.port, config.network.grpc_port, config.heartbeat.port) == (0, 0, 0)
    assert config.run.training is False
    assert config.training.model == "rwkv7"
    assert config.run.rounds == 3
    assert config.diloco.inner_steps == 7
    assert config.diloco.outer_lr == 0.5


def test_address_that_is_none_is_refused_with_who_gave_it():
    with pytest.raises(
        ConfigError, match=r"'htp://a:1' \(write .*\): it begins with htp://, set by --tracker"
    ):
        gather({"host": "127.0.0.1", "tracker": ["http://a:1", "htp://a:1"]}, {})


def test_config_file_may_be_named_by_the_environment(file: Path):
    config = gather({"host": "127.0.0.1"}, {"NEUROSWARM_CONFIG": str(file)})
    assert config.diloco.inner_steps == 100


def test_a_node_that_was_given_nobody_says_the_ways_at_once(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    flags = {"host": "127.0.0.1", "state_dir": tmp_path}
    say_how_to_find(gather(flags, {}))
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert "starting alone" in line
    assert all(way in line for way in ("--tracker http://", "--peer HOST", "dns://NAME"))


def test_a_node_that_knew_others_says_that_it_looks_for_them(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    known = Acquaintance(NodeId(bytes(20)), Endpoint("10.0.0.5", 9999))
    (tmp_path / PEERS_FILE).write_bytes(encode_acquaintances([known]))
    flags = {"host": "127.0.0.1", "state_dir": tmp_path, "assignments": ["dht.seeds=10.0.0.6:8101"]}
    say_how_to_find(gather(flags, {}))
    assert "looking at the seeds of the DHT and among the peers of former runs." in caplog.text


@pytest.mark.parametrize("file", [None, b"", encode_acquaintances([])], ids=["no", "bad", "empty"])
def test_nobody_is_remembered_of_no_file(caplog, tmp_path, file: bytes | None):
    caplog.set_level(logging.INFO)
    if file is not None:
        (tmp_path / PEERS_FILE).write_bytes(file)
    say_how_to_find(gather({"host": "127.0.0.1", "state_dir": tmp_path}, {}))
    assert "starting alone" in caplog.text


@pytest.mark.parametrize("flags", [{"tracker": ["a:1"]}, {"peer": ["dns://a"]}])
def test_a_node_that_was_given_somebody_is_told_no_ways(caplog, flags):
    caplog.set_level(logging.INFO)
    say_how_to_find(gather({"host": "127.0.0.1", **flags}, {}))
    assert not [r for r in caplog.records if r.levelno == logging.INFO]


def test_a_peer_that_is_no_address_is_an_error_that_names_the_flag():
    with pytest.raises(ConfigError, match=r"no peer address: 'http://a:1'.*set by --peer"):
        gather({"host": "127.0.0.1", "peer": ["b", "http://a:1"]}, {})


def test_peers_and_announced_hosts_come_from_the_environment_too():
    variables = {"NEUROSWARM_PEER": "a, dns://b:7101", "NEUROSWARM_ANNOUNCE": "10.0.0.1,c.example"}
    network = gather({"host": "127.0.0.1"}, variables | {"NEUROSWARM_NETWORK_LAN": "false"}).network
    assert network.peers == ("a", "dns://b:7101")
    assert network.announce_host == ("10.0.0.1", "c.example")
    assert not network.lan


@pytest.mark.parametrize("name", sorted(SHORT_NAMES))
@pytest.mark.parametrize("value", ["", "  ", ["a", ""]], ids=["empty", "blank", "one of several"])
def test_a_flag_without_a_value_is_an_error_that_names_it(name: str, value: object):
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(ConfigError, match=f"{SHORT_NAMES[name]}: {flag} is given without a value"):
        from_flags({name: value})


@pytest.mark.parametrize("flag", ["data", "state-dir", "config", "token-file"])
def test_a_path_without_a_name_is_not_the_working_folder(
    flag: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["node", f"--{flag}="]) == 2
    assert f"'--{flag}': a path without a name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "prepare", "", "--out", "out"],
        ["data", "prepare", "text", "--out="],
        ["data", "prepare", "text", "--out", "out", "--tokenizer="],
        ["data", "describe", "shards", "--to="],
        ["data", "show", ""],
        ["data", "verify", ""],
        ["owner", "show", ""],
        ["token", "new", "--out="],
        ["token", "show", "--token-file="],
        ["bench", "checkpoint", "--dir="],
        ["bench", "convergence", "--data="],
        ["demo", "--json="],
        ["export", "state", "--to="],
    ],
    ids=" ".join,
)
def test_no_path_of_any_command_may_be_empty(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert "a path without a name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("setting", ["data.path", "state_dir", "checkpoint.dir", "checkpoint_dir"])
def test_an_empty_path_is_no_setting(setting: str):
    with pytest.raises(ConfigError, match=r"'' is no path .*set by --set"):
        resolve([from_assignments([f"{setting}="])])


@pytest.mark.parametrize("command", ["node", "doctor"])
@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (["300.300.300.300"], "cannot announce host '300.300.300.300'"),
        (["a,b,c,d,e"], "cannot announce 5 hosts to peers: at most 4"),
        (["a", "10.0.0.5:7101"], "cannot announce host '10.0.0.5:7101'"),
    ],
)
def test_hosts_that_cannot_be_announced_end_it_at_once(
    command: str, hosts: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert run([command, *(word for host in hosts for word in ("--announce", host))]) == 78
    line = capsys.readouterr().err
    assert said in line
    assert line.endswith(", set by --announce\n")


def test_brackets_and_commas_are_taken_from_hosts():
    flags = {"host": "[::1]", "announce": ["[2001:db8::1], a", "b"], "peer": ["a,b", "c"]}
    network = gather({**flags, "port": 0, "heartbeat_port": 0}, {}).network
    assert network.host == "::1"
    assert network.announce_host == ("2001:db8::1", "a", "b")
    assert network.peers == ("a", "b", "c")


def test_an_announced_address_that_is_not_listened_to_is_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    gather({"host": "127.0.0.1", "announce": ["2001:db8::1"]}, {})
    (line,) = [r.getMessage() for r in caplog.records if "2001:db8::1" in r.getMessage()]
    assert line.endswith("IPv4 only: give --host :: to listen on both")
