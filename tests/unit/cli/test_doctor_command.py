"""`neuroswarm doctor` as users meet it; torch is left out but in tests/service."""

import inspect
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import neuroswarm.cli.doctor
import neuroswarm.cli.node
from neuroswarm.cli.doctor import conclude
from neuroswarm.cli.main import run
from neuroswarm.doctor.finding import fail, ok, warn

CHECKS = [
    "processor",
    "torch",
    "memory",
    "power",
    "clock",
    "disk",
    "data",
    "network",
    "container",
    "ports",
    "token",
    "peers",
]


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    found = json.loads(capsys.readouterr().out)
    return {row["check"]: row for row in found["findings"]}


def test_every_check_has_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run(["doctor", "--quick", "--state-dir", str(tmp_path), "--port", "0"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == CHECKS
    assert lines[-1].endswith("to be looked at")


def test_json_says_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run(["doctor", "--quick", "--json", "--state-dir", str(tmp_path), "--port", "0"])
    rows = report(capsys)
    assert list(rows) == CHECKS
    assert rows["torch"]["level"] == "skip"
    assert str(tmp_path) in rows["disk"]["said"]


def test_a_port_that_was_asked_for_and_is_taken(capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = run(["doctor", "--quick", "--json", "--host", "127.0.0.1", "--port", port])
    assert code == 70
    row = report(capsys)["ports"]
    assert row["level"] == "fail"
    assert row["said"] == f"port {port} for HTTP is in use"
    assert row["fix"] == "stop what uses it, or choose another with --port"


def test_an_address_of_another_machine(capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "--quick", "--json", "--host", "192.0.2.1"]) == 70
    row = report(capsys)["ports"]
    assert row["said"] == "cannot listen on 192.0.2.1:7101: cannot assign requested address"
    assert row["fix"].startswith("192.0.2.1 is none of this machine's addresses: give one of them")


def test_ports_that_were_looked_at_are_free_again(capsys: pytest.CaptureFixture[str]):
    arguments = ["doctor", "--quick", "--json", "--host", "127.0.0.1", "--heartbeat-port", "0"]
    run(arguments)
    first = report(capsys)["ports"]
    run(arguments)
    assert report(capsys)["ports"]["level"] == first["level"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--set", "diloco.inner_stps=3"], 78, "did you mean 'diloco.inner_steps'?"),
        (["--config", "/nowhere.toml"], 78, "cannot read /nowhere.toml"),
        (["--port", "x"], 2, "--port"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["doctor", *arguments]) == code
    said = capsys.readouterr()
    assert line in said.err
    assert said.err.count("\n") == 1


def test_it_takes_every_flag_of_the_node():
    node = inspect.signature(neuroswarm.cli.node.node).parameters
    its = inspect.signature(neuroswarm.cli.doctor.doctor).parameters
    assert {name: its[name].annotation for name in node} == {
        name: flag.annotation for name, flag in node.items()
    }
    assert {name: its[name].default for name in node} == {
        name: flag.default for name, flag in node.items()
    }


def test_a_command_line_of_the_node_is_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "text").write_text("something to train on\n" * 100)
    flags = ["--data", str(tmp_path / "text"), "--no-lan", "--max-upload", "200kB"]
    flags += ["--data-cap", "500MB/day", "--no-training", "--fresh", "--rounds", "3", "--http-open"]
    run(["doctor", "--quick", "--json", "--port", "0", *flags, "--log-level", "debug"])
    row = report(capsys)["data"]
    assert row["level"] == "ok"
    assert row["said"] == f"2200 bytes of text in 1 file of {tmp_path / 'text'}"


def test_what_the_node_refuses_the_doctor_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert run(["doctor", "--no-training", "--tokens", "100"]) == 78
    assert "never trains on 100 tokens" in capsys.readouterr().err
    assert run(["doctor", "--accept-token-file", str(tmp_path / "none")]) == 77
    assert run(["doctor", "--data-cap", "500"]) == 78


def test_the_exit_code_tells_what_cannot_stay(capsys: pytest.CaptureFixture[str]):
    fine, odd, broken = ok("a", "fine"), warn("b", "odd", "look"), fail("c", "broken", "mend")
    assert conclude([fine, odd], as_json=False) == 0
    assert capsys.readouterr().out == "a node will run here; 1 to be looked at\n"
    assert conclude([fine, odd, broken], as_json=False) == 70
    assert capsys.readouterr().out == "1 to be fixed, 1 to be looked at\n"


def test_the_doctor_itself_needs_no_torch(tmp_path: Path):
    code = (
        "import sys\n"
        "from neuroswarm.cli.main import run\n"
        f"run(['doctor', '--quick', '--state-dir', {str(tmp_path)!r}, '--tracker', 'http://127.0.0.1:1'])\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
