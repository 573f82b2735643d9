"""The command as users meet it: help without torch, one line for every mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.cli.main import run

NODE = ["node", "--port", "0", "--grpc-port", "0", "--heartbeat-port", "0"]
"""Without a word on ports, whatever else runs on this machine."""

HEAVY = ("torch", "asyncio", "grpc", "aiohttp", "numpy", "cryptography", "neuroswarm.config")


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch):
    for variable in ("NEUROSWARM_TOKEN", "NEUROSWARM_TOKEN_FILE", "NEUROSWARM_PORT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    "command",
    [
        "",
        "node",
        "tracker",
        "status",
        "token",
        "demo",
        "doctor",
        "data",
        "export",
        "generate",
        "deploy push",
    ],
)
def test_help_imports_nothing_heavy(command: str):
    code = (
        "import sys\n"
        "from neuroswarm.cli.main import run\n"
        f"code = run({[*command.split(), '--help']!r})\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(code or (repr(heavy) if heavy else 0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: neuroswarm" in done.stdout


def test_status_and_token_need_no_torch():
    code = (
        "import sys\n"
        "from neuroswarm.cli.main import run\n"
        "run(['token', 'new']); run(['status', '1'])\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["nod"], 2, "No such command 'nod'"),
        (["node", "--prot", "1"], 2, "No such option: --prot"),
        (["node", "--port", "x"], 2, "--port"),
        (["node", "--rounds"], 2, "--rounds"),
        (["node", "--port", "70000"], 78, "network.port: 70000"),
        (["deploy", "labl"], 2, "No such command 'labl'. Did you mean 'label'?"),
        (["deploy", "compose", "uo"], 2, "No such command 'uo'."),
        (["deploy", "bogus"], 2, "No such command 'bogus'."),
        (["deploy", "deploy", "--tracker-hots", "x"], 2, "(Possible options: --tracker-host)"),
        (["node", "--set", "diloco.inner_stps=3"], 78, "did you mean 'diloco.inner_steps'?"),
        (["node", "--model", "rwkv"], 78, "did you mean 'rwkv7'?, set by --model"),
        (["node", "--config", "/nowhere.toml"], 78, "cannot read /nowhere.toml"),
        (["node", "--host", "192.0.2.1"], 78, "cannot listen on 192.0.2.1"),
        ([*NODE, "--token", "secret"], 77, "malformed swarm token"),
        ([*NODE, "--token-file", "/nowhere"], 77, "cannot read the token file /nowhere"),
        (["tracker", "--token", "secret"], 77, "malformed swarm token"),
        ([*NODE, "--accept-token-file", "/nowhere"], 77, "cannot read the token file /nowhere"),
        (["tracker", "--accept-token-file", "/nowhere"], 77, "cannot read the token file"),
        (["token", "show"], 77, "no token: give --token"),
        (["status", "ftp://x"], 78, "it begins with ftp://"),
        (["status", "x:y"], 78, "a port is a number from 1 to 65535"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_an_exit_code(
    arguments: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == code
    streams = capsys.readouterr()
    assert streams.out == ""
    said = streams.err.strip().splitlines()
    assert len(said) == 1, streams.err
    assert said[0].startswith("neuroswarm: ")
    assert line in said[0]


def test_secret_is_not_repeated_in_errors(capsys: pytest.CaptureFixture[str]):
    run(["node", "--token", "nswarm-hunter2"])
    assert "hunter2" not in capsys.readouterr().err


def test_bare_command_shows_its_help(capsys: pytest.CaptureFixture[str]):
    assert run([]) == 0
    assert "Usage: neuroswarm" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("neuroswarm 0.")


def test_token_new_goes_to_a_private_file_and_is_shown_by_fingerprint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "token"
    assert run(["token", "new", "--out", str(path)]) == 0
    made = capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in made
    assert run(["token", "show", "--token-file", str(path)]) == 0
    fingerprint = capsys.readouterr().out.strip()
    assert fingerprint in made
    assert run(["token", "new", "--out", str(path)]) == 77
    assert "exists already" in capsys.readouterr().err


def test_new_tokens_differ(capsys: pytest.CaptureFixture[str]):
    run(["token", "new"])
    run(["token", "new"])
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert first.startswith("nswarm-")


def test_module_runs_as_a_script(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "neuroswarm", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout.startswith("neuroswarm 0.")
