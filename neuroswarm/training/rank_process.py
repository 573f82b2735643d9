"""One process that computes on a further device of the node, as the node sees it.

Knows nothing of what it computes.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from neuroswarm.training.rank_channel import RankChannel

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
)
KILL_S = 10.0
"""Longest wait for a process that was killed; only one in the kernel's hands takes longer."""


def command_for(module: str) -> tuple[str, ...]:
    """What starts a new Python that finds the same modules as this one, and calls `main` there.

    Args:
        module: Name of the module that has `main`.
    """
    paths = [str(Path.cwd()) if path == "" else path for path in sys.path]
    return (sys.executable, "-P", "-c", _START.format(module=module), json.dumps(paths))


class RankProcess:
    """A child process; one end of a socket pair is its standard input, the other is here.

    It ends when this end closes, so also when this process is killed.

    Threads: any, one at a time.
    """

    def __init__(self, command: Sequence[str], device: str) -> None:
        """Start it.

        Raises:
            OSError: no process can be started.
        """
        self.device = device
        """What it computes on."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL
            )
        self.channel = RankChannel(ours)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def explain_end(self) -> str:
        """How it ended, with the last that it said; empty while it runs."""
        status = self._process.poll()
        if status is None:
            return ""
        said = self._last_words()
        if said:
            return said
        if status >= 0:
            return f"its process ended with status {status}"
        try:
            return f"its process was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"its process was killed by signal {-status}"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.channel.close()
        try:
            self._process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            return  # the kernel holds it, as where a driver hangs: it ends when it comes back

    def _last_words(self) -> str:
        while True:
            try:
                document, _ = self.channel.receive(within_s=0.1)
            except (OSError, EOFError, ValueError):
                return ""
            if "failed" in document:
                return str(document["failed"])
