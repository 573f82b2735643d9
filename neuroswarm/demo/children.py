"""Child processes that never outlive this one.

Each runs on a leash (`neuroswarm.demo.leash`) in a session of its own, so that Ctrl-C reaches
this process alone, which then ends them. Knows nothing of what they do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_GRACE_S = 30.0
"""Seconds for a graceful stop of all, then they are killed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run."""

    arguments: Sequence[str]
    """Program and arguments; the program with its full path."""
    environment: Mapping[str, str]
    log: Path
    """Standard output and error are appended here."""
    input: str = ""
    """Standard input."""


class Children:
    """A set of processes that all end with the `with` block."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start a process. Call it from the main thread: the leash is tied to the caller's."""
        leash = [sys.executable, "-m", "neuroswarm.demo.leash", str(os.getpid())]
        with command.log.open("ab") as log:
            process = subprocess.Popen(
                [*leash, *command.arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(command.environment),
                start_new_session=True,
            )
        self._running.append(process)
        assert process.stdin is not None, "asked for above"
        try:
            process.stdin.write(command.input.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended already; whoever polls it says so
        return process

    def stop_all(self) -> list[int]:
        """Ask all to stop, at the same moment; kill those that do not in time.

        Returns:
            The exit codes of those that were running, in the order of their starts.
        """
        asked = [process for process in self._running if process.poll() is None]
        for process in asked:
            process.send_signal(signal.SIGTERM)
        for process in asked:
            try:
                process.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        return [process.returncode for process in asked]

    def kill_all(self) -> None:
        """Kill all and wait until they are gone."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
        self._running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()
