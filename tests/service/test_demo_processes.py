"""`neuroswarm demo` with real processes: it ends well, and nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from neuroswarm.cli.main import run
from neuroswarm.demo.children import Children, Command

TINY = [
    *("--set", "training.dim=16", "--set", "training.num_layers=1", "--set", "training.context=16"),
    *("--set", "training.batch_size=2", "--set", "training.eval_batches=1"),
    *("--set", "diloco.inner_steps=100", "--set", "data.max_bytes=200000"),
]
GONE_S = 20.0

SLEEPER = """
import os, sys
from pathlib import Path
from neuroswarm.demo.children import Children, Command
with Children() as children:
    process = children.start(Command(["/bin/sleep", "600"], os.environ, Path(sys.argv[1])))
    print(process.pid, flush=True)
    sys.stdin.read()
"""


def sleep_command(log: Path) -> Command:
    return Command(["/bin/sleep", "600"], os.environ, log)


def wait_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=GONE_S)
    return not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_children_end_with_the_block(tmp_path: Path):
    with Children() as children:
        process = children.start(sleep_command(tmp_path / "log"))
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_graceful_stop_tells_the_exit_codes(tmp_path: Path):
    with Children() as children:
        children.start(sleep_command(tmp_path / "log"))
        ended = children.start(Command(["/bin/true"], os.environ, tmp_path / "log"))
        ended.wait()
        assert children.stop_all() == [-signal.SIGTERM]


def test_children_get_their_input_and_keep_a_log(tmp_path: Path):
    with Children() as children:
        command = Command(["/bin/cat"], os.environ, tmp_path / "log", input="secret\n")
        assert children.start(command).wait() == 0
    assert (tmp_path / "log").read_text() == "secret\n"


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", SLEEPER, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        assert wait_gone([child])


def new_children(before: list[psutil.Process]) -> list[psutil.Process]:
    """Children started since; another test may have left multiprocessing's own helper."""
    return [child for child in psutil.Process().children(recursive=True) if child not in before]


@contextmanager
def running_demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A demo whose peers have begun, with its processes."""
    command = [sys.executable, "-m", "neuroswarm", "demo", "--peers", "2", "--minutes", "5", *TINY]
    command += ["--work-dir", str(tmp_path / "work")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            next(line for line in process.stdout if line.startswith("round 1:"))
            yield process, psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -9)],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else "",
)
def test_stopped_demo_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int):
    with running_demo(tmp_path) as (process, nodes):
        assert len(nodes) == 2
        process.send_signal(number)
        assert process.wait() == code
        assert wait_gone(nodes)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_short_demo_measures_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "demo.json"
    before = psutil.Process().children(recursive=True)
    for minutes in ("0.3", "1"):
        code = run(["demo", "--peers", "2", "--minutes", minutes, "--json", str(path), *TINY])
        said = capsys.readouterr().err
        assert code in (0, 70), said  # so short a run may keep no promise of loss
        report = json.loads(path.read_text())
        if "too few full rounds" not in said:  # as on a busy machine
            break
    assert report["rounds"] > 0
    assert report["digests_equal"] == 1.0
    assert report["foreign_contributions_used"] > 0
    assert report["bytes_vs_allreduce"] > 0
    assert 0 < report["utilisation"] <= 1
    assert 0 < report["loss_swarm"] < 6
    assert 0 < report["loss_alone"] < 6
    assert path.with_suffix(".png").stat().st_size > 1000
    assert new_children(before) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_peer_that_fails_ends_the_demo_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty = tmp_path / "text"
    empty.write_bytes(b"")
    before = psutil.Process().children(recursive=True)
    flags = ["--no-picture", "--data", str(empty), "--work-dir", str(tmp_path / "work")]
    assert run(["demo", "--peers", "2", *TINY, *flags]) == 70
    said = capsys.readouterr().err
    assert "neuroswarm: peer-1 ended with 78: neuroswarm: " in said
    assert str(tmp_path / "work") in said
    assert new_children(before) == []


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--peers", "1"], "peers out of range: 1"),
        (["--set", "training.dm=1"], "did you mean 'training.dim'"),
        (["--set", "network.port=1"], "--set network.port: the demo decides that itself"),
        (["--data", "/nowhere"], "no such file or folder: /nowhere"),
        (["--json", "/nowhere/demo.json"], "cannot write /nowhere/demo.json"),
        (["--json", "."], "cannot write .: it is a folder"),
        (["--work-dir", "/tmp"], "work folder exists already: /tmp"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_said_before_anything_starts(
    flags: list[str], line: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["demo", *flags]) == 78
    assert line in capsys.readouterr().err
