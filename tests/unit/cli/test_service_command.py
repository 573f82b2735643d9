"""`neuroswarm service`: the units that it writes, which systemd itself checks, and what it runs.

`systemctl` is a program in these tests that notes what it is asked: no machine's own units change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.cli import service, service_unit
from neuroswarm.cli.main import run
from neuroswarm.cli.service_unit import MARK, Unit
from neuroswarm.errors import ConfigError
from neuroswarm.identity.token import SwarmToken

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")

HARMLESS = ("Special user nobody configured",)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, and a `systemctl` that writes down what it is asked."""
    programs = tmp_path / "programs"
    programs.mkdir()
    control = programs / "systemctl"
    control.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "systemd 252 (252.1)"; exit; }\n'
        f'echo "$@" >> {tmp_path}/asked\n'
        f"[ ! -e {tmp_path}/broken ] || {{ echo no bus >&2; exit 1; }}\n"
    )
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service_unit, "SYSTEM_CONFIG", tmp_path / "etc" / "node.toml")
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


def test_what_the_made_up_user_cannot_read_is_named(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "python"
    program.touch(mode=0o755)
    tmp_path.chmod(0o755)
    assert service._find_closed(program) in (closed, *closed.parents)
    assert service._find_closed(Path("/bin/sh").resolve()) is None


def test_a_unit_of_somebody_else_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]):
    unit = home / ".config" / "systemd" / "user" / "neuroswarm.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    assert run(["service", "install", "--user"]) == 78
    assert run(["service", "uninstall", "--user"]) == 78
    assert "give another --name" in capsys.readouterr().err
    assert unit.read_text() == "[Unit]\n"


def test_what_systemctl_says_is_passed_on(home: Path, capsys: pytest.CaptureFixture[str]):
    (home / "broken").touch()
    assert run(["service", "install", "--user"]) == 78
    assert "systemctl --user daemon-reload failed with 1: no bus" in capsys.readouterr().err
