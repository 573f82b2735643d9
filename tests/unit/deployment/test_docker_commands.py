"""Docker commands as values: the line that is shown does in a shell what is run."""

import shlex
import subprocess

import pytest

from neuroswarm.deployment.command import Command, Fed, Output, UntilEmpty, docker

AWKWARD = ["a b", "$HOME", "it's", '"', "*", "--flag=x y", "{{json .}}", "`id`", "\\", "a\nb", ""]


def seen_by_docker(line: str) -> list[str]:
    """The arguments that a program named docker gets when a real shell runs the line."""
    script = "docker() { printf '%s\\0' \"$@\"; }\n" + line
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def test_a_shell_reads_the_line_as_the_same_words():
    assert seen_by_docker(str(docker("service", "ls", *AWKWARD))) == ["service", "ls", *AWKWARD]


def test_variables_stand_before_it_and_are_quoted():
    line = str(docker("stack", "deploy", variables={"IMAGE": "a b:1", "MTU": "1280"}))
    assert shlex.split(line) == ["env", "IMAGE=a b:1", "MTU=1280", "docker", "stack", "deploy"]


def test_what_another_command_prints_is_one_word_or_one_a_line():
    inner = docker("node", "ls")
    script = "docker() { [ $# = 2 ] && { echo 'a b'; echo c; } || printf '<%s>' \"$@\"; }\n"
    for word, shown in (
        (Output(inner), "<x><y><a b\nc>"),
        (Output(inner, True), "<x><y><a><b><c>"),
    ):
        line = script + str(docker("x", "y", word))
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
        assert done.stdout == shown


def test_what_is_fed_is_never_shown():
    fed = Fed("the secret text", "< token")
    command = docker("secret", "create", "name", "-", fed=fed)
    assert str(command) == "docker secret create name - < token"
    assert "the secret text" not in repr(command)


def test_what_is_fed_by_another_program_stands_behind_its_pipe():
    fed = Fed("the secret text", "printenv NEUROSWARM_TOKEN |")
    line = str(docker("secret", "create", "name", "-", fed=fed))
    assert line == "printenv NEUROSWARM_TOKEN | docker secret create name -"


def test_waiting_is_a_loop_that_ends_once_nothing_is_printed():
    line = str(UntilEmpty(docker("ps")))
    script = "docker() { :; }\n" + line
    subprocess.run(["sh", "-c", script], check=True, timeout=10)


@pytest.mark.parametrize("command", [docker("info"), Command(("info",))])
def test_commands_of_the_same_words_are_the_same(command: Command):
    assert command == docker("info")
