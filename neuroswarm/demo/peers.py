"""One peer of a demo: its processes, one after the other, and what their event log said.

Knows nothing of the other peers.
"""

from __future__ import annotations

import http.client
import subprocess
from dataclasses import replace
from pathlib import Path

from neuroswarm.clock import Clock
from neuroswarm.demo.children import Children, Command
from neuroswarm.demo.events import (
    Event,
    Life,
    LineSplitter,
    PeerRecord,
    make_record,
    parse_event,
)
from neuroswarm.demo.launch import HOST, Ports
from neuroswarm.errors import DemoFailed

_PROBE_TIMEOUT_S = 2.0


class Peer:
    """A peer that may be started, killed and started again on the same folder."""

    def __init__(
        self,
        folder: Path,
        command: Command,
        ports: Ports,
        *,
        clock: Clock,
        is_hostile: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = folder.name
        self.folder = folder
        self.ports = ports
        self.is_hostile = is_hostile
        self.events: list[Event] = []
        self.lives: list[Life] = []
        self._command = command
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = LineSplitter()
        self._position = 0

    @property
    def state_folder(self) -> Path:
        """The node's state folder."""
        return self.folder / "state"

    @property
    def pid(self) -> int:
        """Id of its process; only while it is running."""
        assert self._process is not None, "asked of running peers"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it is started and was not ended by the demo."""
        return self._process is not None

    def start(self, children: Children) -> None:
        """Start the process."""
        self._process = children.start(self._command)
        self.lives.append(Life(self._clock.wall(), float("inf")))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None, "only a running peer is killed"
        self._process.kill()
        self._process.wait()
        self.note_end()

    def note_end(self) -> None:
        """From now on it is expected not to run."""
        if self._process is not None:
            self.lives[-1] = replace(self.lives[-1], ended_at=self._clock.wall())
            self._process = None

    def has_ended(self) -> bool:
        """Whether the process ended by itself, and well.

        Raises:
            DemoFailed: it ended with an error; the message has the last line of its log.
        """
        code = None if self._process is None else self._process.poll()
        if code is None:
            return False
        if code != 0:
            raise DemoFailed(f"{self.name} ended with {code}: {self._last_line()}")
        return True

    def is_ready(self) -> bool:
        """Whether the node answers and holds a state."""
        connection = http.client.HTTPConnection(HOST, self.ports.http, timeout=_PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def poll(self) -> None:
        """Read what was added to the event log."""
        path = self.state_folder / "events.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        self._position += len(data)
        for line in self._lines.feed(data.decode("ascii", errors="replace")):
            event = parse_event(line)
            if event is not None:
                self.events.append(event)

    def record(self) -> PeerRecord:
        """All that is known so far."""
        return make_record(self.name, self.events, lives=self.lives, is_hostile=self.is_hostile)

    def _last_line(self) -> str:
        lines = self._command.log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} ({self._command.log})"
