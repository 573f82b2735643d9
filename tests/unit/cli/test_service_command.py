"""`neuroswarm service`: the units that it writes, which systemd itself checks, and what it runs.

`systemctl` is a program in these tests that notes what it is asked: no machine's own units change.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

import neuroswarm
from neuroswarm.cli import service_places, service_unit
from neuroswarm.cli.config import merge, read_node_flags
from neuroswarm.cli.main import run
from neuroswarm.cli.service_files import require_rights
from neuroswarm.cli.service_flags import read_typed
from neuroswarm.cli.service_places import Place, require_open
from neuroswarm.cli.service_unit import MARK, Unit
from neuroswarm.config.setting_paths import make_text_whole, path_settings
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.accounts import NOBODY, READ, Account, is_root, name_group
from neuroswarm.identity.token import SwarmToken

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")

HARMLESS = ("Special user nobody configured",)

ME = getpass.getuser()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python for which this neuroswarm is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "neuroswarm.pth").write_text(f"{Path(neuroswarm.__file__).parents[1]}\n")
    return folder / "bin" / "python"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, and a `systemctl` that writes down what it is asked."""
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    control = programs / "systemctl"
    control.write_text(
        f"""#!/bin/sh
cd {tmp_path}
case "$*" in
--version) echo "systemd 252 (252.1)"; exit ;;
*show*) [ ! -e silent ] || {{ echo no bus >&2; exit 1; }}; exit ;;
*status*) exit "$(cat state)" ;;
esac
echo "$@" >> asked
[ ! -e refuses ] || case "$*" in *"$(cat refuses)"*) echo it rains >&2; exit 5 ;; esac
"""
    )
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in [name for name in os.environ if name.startswith(("XDG_", "NEUROSWARM_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service_unit, "SYSTEM_CONFIG", tmp_path / "etc" / "node.toml")
    monkeypatch.setattr(service_unit, "SYSTEM_UNITS", tmp_path / "etc" / "systemd")
    monkeypatch.setattr(service_unit, "SYSTEM_STATE", tmp_path / "var")
    monkeypatch.setattr(service_unit, "SYSTEM_SCRIPTS", tmp_path / "init.d")
    monkeypatch.setattr(service_unit, "OTHER_SYSTEM_UNITS", (tmp_path / "lib",))
    monkeypatch.setattr(service_unit, "OTHER_USER_UNITS", (tmp_path / "lib",))
    monkeypatch.setattr(service_places, "EMPTIED", (tmp_path / "emptied",))
    return tmp_path


def asked(home: Path) -> list[str]:
    return (home / "asked").read_text().splitlines() if (home / "asked").exists() else []


def token_file(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(SwarmToken.new().text)
    path.chmod(mode)
    return path


def verify(unit: str, name: str, folder: Path, *flags: str) -> None:
    """Have systemd read the unit; it must have nothing to say."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.service"
    path.write_text(unit)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    done = subprocess.run(
        [program, *flags, "verify", str(path)], capture_output=True, text=True, env=environment
    )
    said = [line for line in done.stderr.splitlines() if not any(h in line for h in HARMLESS)]
    assert (done.returncode, said) == (0, [])


def test_systemd_takes_the_units(home: Path):
    program = (sys.executable, "-m", "neuroswarm", "node", "--name", 'a "b" $c %d')
    whole = Unit(
        "neuroswarm", program, False, 252, config=home / "with blank.toml",
        token_file=home / "to ken", state_dir=home / "state %$", run_as="nobody",
        groups=("video",), writable=(home / "more",), reads_home=True, ends=True,
        accepted=(home / "to ken 2", home / "3"), folder=home / "my %m",
    )  # fmt: skip
    verify(whole.render(), "neuroswarm", home)
    verify(Unit("plain", program, False, 252).render(), "plain", home)
    verify(Unit("mine", program, True, 252).render(), "mine", home, "--user")


def test_what_a_unit_says():
    unit = Unit("ns", ("/opt/py", "-m", "neuroswarm", "node"), False, 252, token_file=Path("/t"))
    lines = unit.render().splitlines()
    assert lines[0] == MARK
    wanted = {
        "Type=notify", "Restart=always", "RestartSec=30", "TimeoutStopSec=90", "DynamicUser=yes",
        "StateDirectory=ns", "ProtectHome=yes", "LoadCredential=swarm-token:/t",
        "ConditionPathExists=/opt/py", f"WatchdogSec={service_unit.WATCHDOG_S}",
    }  # fmt: skip
    assert wanted <= set(lines)
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    assert start.endswith(
        "--state-dir ${STATE_DIRECTORY} --token-file ${CREDENTIALS_DIRECTORY}/swarm-token"
    )
    newer = Unit("ns", ("/opt/py",), False, 255).render()
    assert "RestartMaxDelaySec=5min" in newer


def test_words_are_left_as_they_are_by_systemd():
    assert service_unit.quote_argument("plain=1") == "plain=1"
    assert service_unit.quote_argument('a "b" $c %d \\') == '"a \\"b\\" $$c %%d \\\\"'
    assert service_unit.quote("HOME=/a$b") == "HOME=/a$b"
    with pytest.raises(ConfigError, match=r"'/srv/a\\nb' has a control character"):
        service_unit.quote("/srv/a\nb")
    assert "ExecStart=/opt/$a%%b " in Unit("ns", ("/opt/$a%b",), False, 252).render()
    for name in ('a"b', "a\\b"):
        with pytest.raises(ConfigError, match="quote or a backslash"):
            Unit("ns", (f"/opt/{name}",), False, 252).render()
    with pytest.raises(ConfigError, match="has a control character"):
        Unit("ns", ("/opt/py",), False, 252, token_file=Path("/t\nUser=root")).render()


def test_a_users_unit_is_installed_shown_and_removed(
    home: Path, capsys: pytest.CaptureFixture[str]
):
    token = token_file(home)
    flags = ["--user", "--token-file", "token", "--tracker", "http://10.0.0.5:7101"]
    assert run(["service", "install", *flags]) == 0
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    text = unit.read_text()
    assert f"node --tracker http://10.0.0.5:7101 --token-file {token}" in text
    commands = [
        "--user daemon-reload",
        "--user enable neuroswarm.service",
        "--user restart --no-block neuroswarm.service",
    ]
    assert asked(home) == commands
    shown = capsys.readouterr().out
    assert all(f"+ systemctl {command}" in shown for command in commands)
    assert text in shown
    verify(text, "neuroswarm", home, "--user")
    assert run(["service", "show", "--user"]) == 0
    assert text in capsys.readouterr().out
    assert run(["service", "install", *flags]) == 0, "it may be written over"
    (home / "asked").unlink()
    assert run(["service", "uninstall", "--user"]) == 0
    assert not unit.exists()
    assert asked(home) == ["--user disable --now neuroswarm.service", "--user daemon-reload"]


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_dry_run_changes_nothing(command: str, home: Path, capsys: pytest.CaptureFixture[str]):
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    if command == "uninstall":
        unit.parent.mkdir(parents=True)
        unit.write_text(f"{MARK}\n")
    assert run(["service", command, "--user", "--dry-run"]) == 0
    assert "+ systemctl --user" in capsys.readouterr().out
    assert unit.exists() == (command == "uninstall")
    assert not asked(home)


def test_the_settings_file_at_the_usual_place_is_used_and_checked(
    home: Path, capsys: pytest.CaptureFixture[str]
):
    file = home / ".config" / "neuroswarm" / "node.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[run]\nminutes = 5\n")
    assert run(["service", "install", "--user", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"--config {file}" in shown
    assert f"ConditionPathExists={file}" in shown
    assert "Restart=on-failure" in shown, "a run that ends is not begun again"
    file.write_text("[run]\nminute = 5\n")
    assert run(["service", "install", "--user", "--dry-run"]) == 78
    assert "did you mean 'run.minutes'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--name", "../x"], "cannot name a unit"),
        (["--token", "nswarm-x"], "--token would be for all to read in the unit"),
        (["--run-as", "nobody"], "--run-as is for units of the system"),
        (["--rounds", "0"], "run.rounds"),
        (["--system", "--state-dir", "/srv/x"], "give --run-as"),
        (["--system", "--set", "checkpoint.dir=/srv/x"], "give --run-as"),
        (["--name", "x.timer"], "leave its ending out"),
        (["--fresh"], "run.fresh, set by --fresh: every restart"),
        (["--set", "run.fresh=true"], "run.fresh, set by --set"),
        (["--data", "/nope"], "data.path: no such file or folder: /nope"),
        (["--base", "none.safetensors", "--lora-rank", "2"], "none.safetensors is not there"),
        (["--model", "hf:none"], "none is not there"),
        (["--model", "nosuch.part:make"], "training.model: no module 'nosuch', neither"),
        (["--state-dir", "programs/systemctl"], "programs/systemctl is none"),
        (["--state-dir", "programs/systemctl/a/b"], "programs/systemctl is none"),
        (["--set", "checkpoint.dir=programs/systemctl"], "programs/systemctl is none"),
        (["--port", "7500", "--grpc-port", "7500"], "port 7500 is asked for twice"),
        (["--system", "--run-as", "no-such-user-here"], "no such user"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    flags: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["service", "install", "--user", *flags]) == 78
    assert said in capsys.readouterr().err
    assert not (home / ".config").exists()


def test_a_token_that_others_can_read_is_refused(home: Path, capsys: pytest.CaptureFixture[str]):
    token_file(home, 0o644)
    assert run(["service", "install", "--user", "--token-file", "token"]) == 78
    assert "chmod 600" in capsys.readouterr().err


def test_a_unit_of_somebody_else_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]):
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    assert run(["service", "install", "--user"]) == 78
    assert run(["service", "uninstall", "--user"]) == 78
    assert "give another --name" in capsys.readouterr().err
    assert unit.read_text() == "[Unit]\n"


def test_a_manager_that_does_not_answer_is_found_before_anything_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (home / "silent").touch()
    assert run(["service", "install", "--user"]) == 69
    said = capsys.readouterr().err
    assert "does not answer: no bus (XDG_RUNTIME_DIR is not set" in said
    assert "loginctl enable-linger" in said
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    assert run(["service", "install", "--user"]) == 69
    assert f"no session bus at {home}/run/bus" in capsys.readouterr().err
    assert run(["service", "install", "--system", "--run-as", ME]) == 69
    assert "In a container it is not" in capsys.readouterr().err
    assert not (home / ".config").exists()
    assert not (home / "etc").exists()


@pytest.mark.parametrize("refused", ["daemon-reload", "enable", "restart"])
def test_what_systemctl_refuses_is_undone(
    refused: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    (home / "refuses").write_text(refused)
    (home / "old").mkdir()
    assert run(["service", "install", "--user", "--state-dir", "old/new/and/state"]) == 70
    said = capsys.readouterr().err
    assert "failed with 5: it rains" in said
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    assert not unit.exists()
    assert list((home / "old").iterdir()) == []
    (home / "refuses").unlink()
    assert run(["service", "install", "--user"]) == 0
    before = unit.read_text()
    (home / "refuses").write_text(refused)
    assert run(["service", "install", "--user", "--port", "7200"]) == 70
    assert unit.read_text() == before, "the one that was there is there again"


def test_a_unit_is_removed_whatever_systemctl_says(home: Path, capsys: pytest.CaptureFixture[str]):
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    link = unit.parent / "default.target.wants" / unit.name
    assert run(["service", "install", "--user"]) == 0
    link.parent.mkdir()
    link.symlink_to(unit)
    (home / "refuses").write_text("disable")
    assert run(["service", "uninstall", "--user"]) == 70
    said = capsys.readouterr().err
    assert "disable --now neuroswarm.service failed with 5: it rains" in said
    assert "the unit is removed" in said
    assert not unit.exists()
    assert not link.is_symlink()


def test_a_unit_is_removed_where_there_is_no_systemctl(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"{MARK}\n")
    monkeypatch.setenv("PATH", str(home))
    assert run(["service", "uninstall", "--user"]) == 69
    assert "the unit is removed, but no systemctl here" in capsys.readouterr().err
    assert not unit.exists()


@pytest.mark.parametrize(
    ("code", "ends_with", "said"),
    [(0, 0, ""), (3, 69, "does not run"), (4, 69, "no such unit"), (1, 69, "cannot say")],
)
def test_the_status_of_a_service_has_our_exit_codes(
    code: int, ends_with: int, said: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    (home / "state").write_text(str(code))
    assert run(["service", "status", "--user"]) == ends_with
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", ["lib/dbus.service", "init.d/dbus", "var/dbus/records"])
def test_no_unit_takes_the_place_of_something_else(
    place: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    (home / place).parent.mkdir(parents=True)
    (home / place).touch()
    assert run(["service", "install", "--system", "--run-as", ME, "--name", "dbus"]) == 78
    assert "another --name" in capsys.readouterr().err


def test_a_name_may_have_the_ending_of_a_unit(home: Path):
    assert run(["service", "install", "--user", "--name", "second.service"]) == 0
    assert (home / ".config" / "systemd" / "user" / "second.service").exists()
    assert run(["service", "uninstall", "--user", "--name", "second.service"]) == 0


def test_without_rights_root_is_named():
    """As another user, where this one is root."""
    was_root = is_root()
    if was_root:
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match=r"/etc cannot be written .* run it as root \(sudo\)"):
            require_rights(Path("/etc/neuroswarm-none/x.service"))
    finally:
        if was_root:
            os.seteuid(0)


# -- settings ------------------------------------------------------------------------


def installed(home: Path, *flags: str, code: int = 0) -> str:
    """The command of a unit of the user with these flags."""
    assert run(["service", "install", "--user", *flags]) == code
    text = (home / ".config" / "systemd" / "user" / "neuroswarm.service").read_text()
    (start,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    return start


def test_variables_become_flags(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    token = token_file(home)
    variables = {
        "TOKEN_FILE": "token",
        "PORT": "7200",
        "HEARTBEAT_PORT": "7300",
        "LOG_LEVEL": "debug",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"NEUROSWARM_{name}", value)
    start = installed(home, "--heartbeat-port", "7400", "--set", "network.name=ours")
    assert "--set network.port=7200" in start
    assert "--heartbeat-port 7400" in start
    assert "7300" not in start, "flags are the stronger"
    assert "--set network.name=ours" in start
    assert "--log-level debug" in start
    assert f"--token-file {token}" in start
    assert "OPEN" not in capsys.readouterr().err
    monkeypatch.setenv("NEUROSWARM_PROT", "7200")
    assert run(["service", "install", "--user"]) == 78
    assert "did you mean NEUROSWARM_PORT" in capsys.readouterr().err


def test_the_settings_file_may_be_named_by_a_variable(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "mine.toml").write_text("[network]\nport = 7200\n")
    monkeypatch.setenv("NEUROSWARM_CONFIG", "mine.toml")
    assert f"--config {home}/mine.toml" in installed(home)


def test_no_token_of_a_variable_gets_into_a_unit(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    secret = SwarmToken.new().text
    monkeypatch.setenv("NEUROSWARM_TOKEN", secret)
    assert run(["service", "install", "--user"]) == 78
    out = capsys.readouterr()
    assert "put the token in a file" in out.err
    assert secret not in out.out + out.err
    assert not (home / ".config").exists()
    monkeypatch.setenv("NEUROSWARM_TOKEN", "")
    assert run(["service", "install", "--user"]) == 77, "as a node has it"


def test_an_open_swarm_is_said(home: Path, capsys: pytest.CaptureFixture[str]):
    installed(home)
    assert "OPEN to everybody" in capsys.readouterr().err


def test_every_setting_that_is_a_path_is_made_whole(home: Path):
    for name in ("base.safetensors", "text"):
        (home / name).write_text("some words " * 100)
    accepted = home / "former"
    accepted.write_text(SwarmToken.new().text)
    accepted.chmod(0o600)
    start = installed(
        home, "--data", "text", "--accept-token-file", "former", "--base", "base.safetensors",
        "--lora-rank", "2", "--set", "checkpoint_dir=kept", "--state-dir", "state",
    )  # fmt: skip
    for words in (
        f"--data {home}/text", f"--accept-token-file {home}/former", f"--state-dir {home}/state",
        f"--base {home}/base.safetensors", f"--set checkpoint.dir={home}/kept",
    ):  # fmt: skip
        assert words in start


def test_no_path_of_a_unit_goes_up(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Systemd leaves out every path with `..`, with no more than a warning."""
    here = home / "elsewhere" / "here"
    here.mkdir(parents=True)
    (home / "here").symlink_to(here)
    monkeypatch.chdir(home / "programs")
    token = token_file(here.parent)
    (home / "node.toml").write_text("")
    (home / "text").write_text("some words " * 100)
    up = ["--config", "../node.toml", "--data", "../text", "--state-dir", "../state"]
    start = installed(home, *up, "--token-file", "../here/../token", "--set", "checkpoint.dir=../k")
    for words in (
        f"--config {home}/node.toml", f"--data {home}/text", f"--state-dir {home}/state",
        f"--token-file {token}", f"checkpoint.dir={home}/k",
    ):  # fmt: skip
        assert words in start
    assert ".." not in (home / ".config" / "systemd" / "user" / "neuroswarm.service").read_text()


def test_every_setting_that_is_a_path_is_known_by_its_type():
    paths = {
        "network.token_file", "network.accepted_token_files", "data.path", "lora.base",
        "checkpoint.dir", "state_dir",
    }  # fmt: skip
    assert path_settings() == paths
    here = Path.cwd()
    assert make_text_whole("network.accepted_token_files", "a, /b") == f"{here}/a,/b"
    assert make_text_whole("training.model", "hf:folder") == f"hf:{here}/folder"
    assert make_text_whole("training.model", "module:factory") == "module:factory"
    assert make_text_whole("network.name", "a") == "a"
    assert make_text_whole("data.path", "a,b") == f"{here}/a,b"


def test_a_unit_has_the_settings_that_were_typed(home: Path):
    (home / "text").write_text("some words " * 100)
    flags = [
        "--port", "0", "--tracker", "http://a:1", "--tracker", "http://b:2", "--no-lan",
        "--cpu-share", "0.5", "--hours", "22:00-07:00", "--max-upload", "200kB",
        "--set", "diloco_inner_steps=7", "--no-training", "--data", "text", "--rounds", "3",
    ]  # fmt: skip
    variables = {"NEUROSWARM_HTTP_OPEN": "true", "NEUROSWARM_PEER": "10.0.0.1, 10.0.0.2"}
    places = dict.fromkeys(("config", "token_file", "state_dir"))
    typed = read_typed(flags, places, variables, is_user=True).config
    here = merge(read_node_flags(flags), variables).config
    assert typed.data.path == home / "text"
    assert typed.model_copy(update={"data": here.data}) == here


def test_relative_paths_of_a_file_are_refused(home: Path, capsys: pytest.CaptureFixture[str]):
    (home / "text").write_text("some words " * 100)
    (home / "node.toml").write_text('[data]\npath = "text"\n')
    assert run(["service", "install", "--user", "--config", "node.toml"]) == 78
    assert "data.path: text in" in capsys.readouterr().err
    (home / "node.toml").write_text(f'[data]\npath = "{home}/text"\n')
    assert f"--config {home}/node.toml" in installed(home, "--config", "node.toml")


def test_a_factory_in_the_working_folder_is_found_there(home: Path):
    (home / "my_model_here.py").write_text("def make(): ...\n")
    installed(home, "--model", "my_model_here:make")
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    assert f"WorkingDirectory={home}\n" in unit.read_text()
    installed(home, "--model", "json:loads")
    assert "WorkingDirectory" not in unit.read_text()


def test_a_factory_on_the_python_path_is_found_there(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "more").mkdir()
    (home / "more" / "my_model_there.py").write_text("def make(): ...\n")
    monkeypatch.setenv("PYTHONPATH", f"/nope{os.pathsep}programs/../more")
    installed(home, "--model", "my_model_there:make")
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    assert f"WorkingDirectory={home}/more\n" in unit.read_text()


def test_a_program_that_is_not_installed_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """As from a source checkout: only its folder, or PYTHONPATH, has this neuroswarm."""
    checkout = Path(neuroswarm.__file__).parents[1]
    bare = home / "bare"
    venv.create(bare, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    assert run(["service", "install", "--user"]) == 78
    said = capsys.readouterr().err
    assert "the service would find no neuroswarm" in said
    assert f"{bare}/bin/python -m pip install {checkout}" in said
    (packages,) = bare.glob("lib/python*/site-packages")
    (packages / "neuroswarm").mkdir()
    (packages / "neuroswarm" / "__init__.py").touch()
    assert run(["service", "install", "--user"]) == 78
    assert f"would find another neuroswarm ({packages}/neuroswarm)" in capsys.readouterr().err
    assert not (home / ".config").exists()


# -- units of the system -------------------------------------------------------------


def as_system(*flags: str) -> int:
    return run(["service", "install", "--system", "--run-as", ME, "--dry-run", *flags])


def test_accepted_tokens_are_handed_over_as_the_token_is(
    home: Path, capsys: pytest.CaptureFixture[str]
):
    token = token_file(home)
    former = token.rename(home / "former")
    token = token_file(home)
    (home / "etc").mkdir()
    config = f'[network]\ntoken_file = "{token}"\naccepted_token_files = ["{former}"]\n'
    (home / "etc" / "node.toml").write_text(config)
    assert as_system() == 0
    unit = capsys.readouterr().out.partition("+ systemctl")[0]
    assert f"LoadCredential=swarm-token:{token}\n" in unit
    assert f"LoadCredential=accepted-token-1:{former}\n" in unit
    assert "--accept-token-file ${CREDENTIALS_DIRECTORY}/accepted-token-1\n" in unit
    verify(unit.partition("\n")[2], "accepting", home)
    former.chmod(0o644)
    assert as_system() == 78
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["data.path", "checkpoint.dir"])
@pytest.mark.parametrize("folder", ["emptied", "link"])
def test_what_a_system_unit_has_of_its_own_is_refused(
    setting: str, folder: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    (home / "emptied" / "text").mkdir(parents=True)
    (home / "emptied" / "text" / "one").write_text("some words " * 100)
    (home / "link").symlink_to(home / "emptied")
    assert as_system("--set", f"{setting}={folder}/text") == 78
    assert f"{setting}: {home}/{folder}/text is in" in (said := capsys.readouterr().err)
    assert "PrivateTmp=" in said


def test_homes_are_shown_to_a_unit_that_uses_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(service_places, "HOMES", (home / "homes",))
    monkeypatch.setenv("HOME", str(home / "elsewhere"))
    assert as_system() == 0
    assert "ProtectHome=yes" in capsys.readouterr().out
    assert as_system("--set", f"checkpoint.dir={home}/homes/me/kept") == 0
    out = capsys.readouterr().out
    assert "ProtectHome=read-only" in out
    assert f"ReadWritePaths={home}/homes/me/kept" in out


MODES = (
    (0, frozenset({7}), 0o640, True),
    (0, frozenset(), 0o640, False),
    (0, frozenset({7}), 0o604, False),
    (5, frozenset(), 0o440, True),
    (5, frozenset({7}), 0o044, False),
)
"""User and groups of an account besides its number 9, the mode of a file of user 5 and group 7,
and whether it can be read."""


@pytest.mark.parametrize(("user", "groups", "mode", "may"), MODES)
def test_who_may_read_a_file(user: int, groups: frozenset[int], mode: int, may: bool):
    status = os.stat_result((mode, 0, 0, 1, 5, 7, 0, 0, 0, 0))
    assert Account(user or 9, groups).may(status, READ) == may
    as_root = Account(0, groups).may(status, READ)
    assert as_root == Account(9, groups).may(status, READ), "a unit's root has no capabilities"


def test_groups_of_devices_without_a_name_go_by_their_number():
    import grp

    known = {group.gr_gid for group in grp.getgrall()}
    unknown = next(number for number in range(40_000, 60_000) if number not in known)
    assert name_group(unknown) == str(unknown)
    assert name_group(0) == "root"


def test_what_the_user_of_a_unit_may_not_use_is_named(tmp_path: Path):
    (tmp_path / "text").touch(mode=0o600)
    owner = (tmp_path / "text").stat()
    groups = frozenset(part.stat().st_gid for part in tmp_path.parents)
    who = NOBODY if owner.st_uid == 0 else Account(owner.st_uid + 1, groups - {owner.st_gid})
    with pytest.raises(ConfigError, match=r"data.path: \S+ is closed to user x: give --run-as"):
        require_open([Place("data.path", tmp_path)], who, "user x")
    with pytest.raises(ConfigError, match=r"checkpoint.dir: \S+ cannot be written by user x"):
        require_open([Place("checkpoint.dir", tmp_path, is_written=True)], who, "user x")
    with pytest.raises(ConfigError, match="user x cannot pass"):
        require_open([Place("checkpoint.dir", tmp_path / "new", is_written=True)], who, "user x")
    require_open([Place("the program", Path("/bin/sh"))], who, "user x")


@pytest.mark.parametrize("closed", ["a/text", "a"])
def test_one_closed_file_of_the_data_is_found(closed: str):
    with tempfile.TemporaryDirectory() as name:
        data = Path(name).resolve()
        (data / "a").mkdir()
        (data / "a" / "text").touch()
        for path, mode in ((data, 0o755), (data / "a", 0o755), (data / "a" / "text", 0o644)):
            path.chmod(mode)
        require_open([Place("data.path", data)], NOBODY, "user x")
        (data / closed).chmod(0o700)
        with pytest.raises(ConfigError, match=rf"data.path: {data / closed} is closed to user x"):
            require_open([Place("data.path", data)], NOBODY, "user x")
