"""Running commands: real programs stand for docker where only the running itself matters."""

import sys
from pathlib import Path

import pytest

from neuroswarm.deployment.command import Command, Fed, Output, UntilEmpty, docker
from neuroswarm.deployment.engine import Engine
from neuroswarm.errors import DeployError, DockerUnavailable

ANNOUNCED: list[str] = []


@pytest.fixture
def engine() -> Engine:
    """An engine whose client is Python: its commands are programs."""
    ANNOUNCED.clear()
    return Engine({"LANG": "C.UTF-8"}, ANNOUNCED.append, program=sys.executable)


def program(text: str, *words: str | Output, fed: Fed | None = None, **variables: str) -> Command:
    return docker("-c", text, *words, fed=fed, variables=variables)


def test_reading_gives_what_it_prints_and_announces_it(engine: Engine):
    assert engine.read(program("print(1)")) == "1\n"
    assert ANNOUNCED == ["docker -c 'print(1)'"]


def test_words_arrive_as_they_are_and_see_no_shell(engine: Engine):
    text = engine.read(program("import sys; print(sys.argv[1:])", "$HOME", "a b", "`id`"))
    assert text == "['$HOME', 'a b', '`id`']\n"


def test_variables_arrive_beside_the_environment(engine: Engine):
    text = "import os; print(os.environ['IMAGE'], os.environ['LANG'])"
    assert engine.read(program(text, IMAGE="a:1")) == "a:1 C.UTF-8\n"


def test_what_another_command_prints_is_put_in(engine: Engine):
    show = "import sys; print(sys.argv[1:])"
    assert engine.read(program(show, Output(program("print('a b')")))) == "['a b']\n"
    several = program("print('a b'); print('c')")
    assert engine.read(program(show, Output(several, is_list=True))) == "['a', 'b', 'c']\n"
    assert ANNOUNCED[-1] == f"docker -c '{show}' a b c"
    with pytest.raises(DeployError, match=r"several where one was wanted: a b, c .say which"):
        engine.read(program(show, Output(several, advice="say which")))


def test_a_secret_is_read_from_standard_input_and_not_announced(
    engine: Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    text = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    engine.run(program(text, str(tmp_path / "got"), fed=Fed("the-token", "< token")))
    assert (tmp_path / "got").read_text() == "the-token"
    assert "the-token" not in "".join([*ANNOUNCED, *capfd.readouterr()])


def test_a_secret_that_is_not_read_is_no_crash(engine: Engine):
    with pytest.raises(DeployError, match="exit code 3"):
        engine.run(program("raise SystemExit(3)", fed=Fed("x" * 1_000_000, "< token")))


def test_what_it_says_is_shown_as_it_comes(engine: Engine, capfd: pytest.CaptureFixture[str]):
    engine.run(program("import sys; print('out'); print('err', file=sys.stderr)"))
    assert capfd.readouterr() == ("out\n", "err\n")


def test_its_last_words_are_told_once(engine: Engine, capfd: pytest.CaptureFixture[str]):
    last = "Error response from daemon: it rains"
    with pytest.raises(DeployError, match="docker failed, exit code 4: it rains"):
        engine.run(program(f"import sys; print({last!r}, file=sys.stderr); raise SystemExit(4)"))
    assert capfd.readouterr().err == ""
    engine.run(program(f"import sys; print({last!r}, file=sys.stderr)"))
    assert capfd.readouterr().err == f"{last}\n"


@pytest.mark.parametrize(
    "text", ["raise SystemExit(130)", "import os; os.kill(os.getpid(), 2)"], ids=["caught", "not"]
)
def test_what_ctrl_c_ended_is_no_failure_of_docker(engine: Engine, text: str):
    with pytest.raises(KeyboardInterrupt):
        engine.run(program(f"import signal; signal.signal(2, signal.SIG_DFL); {text}"))


def test_waiting_ends_once_nothing_is_printed(engine: Engine, tmp_path: Path):
    left = tmp_path / "left"
    left.write_text("x")
    # The first look sees it and takes it away.
    text = (
        "import pathlib, sys; f = pathlib.Path(sys.argv[1]); print(f.read_text()); f.write_text('')"
    )
    engine.run(UntilEmpty(program(text, str(left))))
    assert left.read_text() == ""
    assert len(ANNOUNCED) == 1
    assert ANNOUNCED[0].startswith("until [ -z ")


def test_without_a_client_it_says_so():
    missing = Engine({}, ANNOUNCED.append, program="/nowhere/docker")
    for call in (missing.read, missing.run):
        with pytest.raises(DockerUnavailable, match="there is no program `docker`"):
            call(docker("info"))
