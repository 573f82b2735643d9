"""Running docker commands: each is announced, then run as a list of arguments, never by a shell.

Refuses to know what the commands are for.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from neuroswarm.deployment.command import Command, Step, UntilEmpty, Word, docker
from neuroswarm.deployment.complaints import explain, no_client
from neuroswarm.errors import DeployError, DockerUnavailable

READ_TIMEOUT_S = 60.0
"""For commands that only ask; an engine that is silent so long is not reachable."""
EMPTY_TIMEOUT_S = 300.0
"""For containers to end; the stack file gives them 90 s."""
POLL_S = 1.0
MAX_KEPT_LINES = 40
"""Of standard error, for the message if the command fails."""
_INTERRUPTED = (130, -2)
"""Exit codes after SIGINT: of a client that caught it, and of one that did not."""
_FINAL_WORDS = (
    "Error response from daemon:",
    "Error: ",
    "ERROR: ",
    "Cannot connect",
    "unknown ",
    "docker: ",
    "Usage: ",
    "Run 'docker",
    "See 'docker",
)
"""How lines begin with which docker gives up."""


@dataclass(frozen=True)
class Engine:
    """The docker client of this machine, with the engine that it is pointed at.

    Args:
        environment: What the client gets; `DOCKER_HOST` and `DOCKER_CONTEXT` in it count.
        announce: Called with every command's line before it runs.
    """

    environment: Mapping[str, str]
    announce: Callable[[str], None]
    program: str = "docker"

    def read(self, command: Command, *, announces: bool = True) -> str:
        """What the command prints.

        Raises:
            DockerUnavailable: no client, no engine, or the wrong one for this command.
            DeployError: the command failed.
        """
        command = self._resolve(command)
        if announces:
            self.announce(str(command))
        try:
            done = subprocess.run(
                [self.program, *map(str, command.words)],
                env=self._environment(command),
                input=command.fed.text if command.fed else "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=READ_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise no_client() from error
        except subprocess.TimeoutExpired as error:
            raise DockerUnavailable(
                f"docker: no answer within {READ_TIMEOUT_S:g} s (is the engine it talks to up? "
                f"see `docker context ls` and DOCKER_HOST); the command: {command}"
            ) from error
        if done.returncode:
            raise explain(str(command), done.returncode, done.stderr or done.stdout)
        return done.stdout

    def run(self, step: Step) -> None:
        """Run a command whose output is for the reader, as it comes; waits until it ends.

        Raises:
            DockerUnavailable: no client, no engine, or the wrong one for this command.
            DeployError: the command failed, or what was waited for did not come.
            KeyboardInterrupt: it was ended by SIGINT.
        """
        if isinstance(step, UntilEmpty):
            self._await(step)
            return
        command = self._resolve(step)
        self.announce(str(command))
        try:
            process = subprocess.Popen(
                [self.program, *map(str, command.words)],
                env=self._environment(command),
                stdin=subprocess.DEVNULL if command.fed is None else subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except FileNotFoundError as error:
            raise no_client() from error
        held: list[str] = []
        with process:
            said = self._attend(process, command, held)
        if process.returncode in _INTERRUPTED:  # the terminal's Ctrl-C goes to both of us
            raise KeyboardInterrupt
        if process.returncode:
            raise explain(str(command), process.returncode, "\n".join(said))
        sys.stderr.write("".join(held))

    def _attend(
        self, process: subprocess.Popen[str], command: Command, held: list[str]
    ) -> deque[str]:
        """Feed the process, show what it says as it says it; the last lines of that."""
        assert process.stderr is not None, "it was asked for"
        said: deque[str] = deque(maxlen=MAX_KEPT_LINES)
        listener = threading.Thread(target=_pass_on, args=(process.stderr, said, held), daemon=True)
        listener.start()
        if process.stdin is not None and command.fed is not None:
            try:
                process.stdin.write(command.fed.text)
                process.stdin.close()
            except BrokenPipeError:  # it ended before it read: what it says tells why
                said.append("it did not read what it was given")
        process.wait()
        listener.join()
        return said

    def _await(self, step: UntilEmpty) -> None:
        deadline = time.monotonic() + EMPTY_TIMEOUT_S
        self.announce(str(step))
        while left := self.read(step.command, announces=False).split():
            if time.monotonic() > deadline:
                raise DeployError(
                    f"still there after {EMPTY_TIMEOUT_S:g} s: {' '.join(left[:5])}; "
                    f"the command: {step.command}"
                )
            time.sleep(POLL_S)

    def _resolve(self, command: Command) -> Command:
        """The same command with what other commands print put in; runs those."""
        words = [text for word in command.words for text in self._fill(word)]
        variables = {name: " ".join(self._fill(word)) for name, word in command.variables.items()}
        return docker(*words, variables=variables, fed=command.fed)

    def _environment(self, command: Command) -> dict[str, str]:
        return {**self.environment, **{n: str(value) for n, value in command.variables.items()}}

    def _fill(self, word: Word) -> list[str]:
        if isinstance(word, str):
            return [word]
        printed = self.read(word.command).strip()
        if word.is_list:
            return printed.split()
        if "\n" in printed:
            raise DeployError(
                f"several where one was wanted: {', '.join(printed.splitlines()[:5])} "
                f"({word.advice or 'name one'}); the command: {word.command}"
            )
        return [printed]


def _pass_on(stream: IO[str], said: deque[str], held: list[str]) -> None:
    """Show each line as it comes, but for those that will be the error's text."""
    for line in stream:
        said.append(line.rstrip("\n"))
        if line.startswith(_FINAL_WORDS) and len(held) < MAX_KEPT_LINES:
            held.append(line)
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
