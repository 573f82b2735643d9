"""Runs `torch_child`, or `import_child`, and reads what it said.

A process of its own, because torch built for another processor kills whoever imports it.
Refuses to judge.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from neuroswarm.doctor.import_child import MAX_ERROR_CHARS

TIMEOUT_S = 600.0
"""A Raspberry Pi takes half a minute to import torch from an SD card; a machine that is busy with
other work takes ten times as long."""

CHILD = (sys.executable, "-m", "neuroswarm.doctor.torch_child")
IMPORT_CHILD = (sys.executable, "-m", "neuroswarm.doctor.import_child")
"""Only imports, and takes a step of next to nothing."""


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What the child found; None for what it did not come to."""

    stage: str = ""
    """What it was doing when it ended; empty if it came to its end."""
    error: str = ""
    """Why it ended early; empty if it was killed, or came to its end."""
    killed_by: str = ""
    """Name of the signal that killed it, like `SIGILL`; empty if none did."""
    numpy: str | None = None
    """Its version."""
    version: str | None = None
    """Of torch."""
    capability: str | None = None
    """Instruction set that torch chose: `DEFAULT`, `AVX2`, `AVX512` ..."""
    device: str | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    """Those that train together, and what became of each: `trains`, or why not."""
    num_threads: int | None = None
    own_model: str | None = None
    """The model of the settings, if it is none of those that are built in."""
    num_parameters: int | None = None
    """Of the model that the settings make."""
    tokens_per_s: float | None = None
    """Training speed of a few steps of that model."""
    peak_bytes: int | None = None
    """Most memory that it took."""
    peak_space_bytes: int | None = None
    """Most address space that it took."""

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end."""
        return not (self.stage or self.error or self.killed_by)


def probe_torch(
    settings: Mapping[str, Any],
    *,
    command: Sequence[str] = CHILD,
    timeout_s: float = TIMEOUT_S,
) -> TorchFacts:
    """Run the child once. Blocks for seconds.

    Args:
        settings: Settings of the node as JSON values; those of `training` and `resources` count.
        command: What to run.
        timeout_s: Seconds after which it is killed.
    """
    try:
        done = subprocess.run(
            command,
            input=json.dumps(settings),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        found = _read_lines(said)
        return _make(found | {"error": f"no end after {timeout_s:g} s"})
    except OSError as error:
        return TorchFacts(stage="start a process", error=str(error))
    found = _read_lines(done.stdout)
    if done.returncode < 0:
        found["killed_by"] = _name_signal(-done.returncode)
    elif done.returncode and not found.get("error"):
        found["error"] = _last_line(done.stderr) or f"exit code {done.returncode}"
        found.setdefault("stage", "start")
    return _make(found)


def _read_lines(text: str) -> dict[str, Any]:
    """What the lines say together, the later over the earlier; libraries may print others."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            found.update(said)
    return found


def _make(found: Mapping[str, Any]) -> TorchFacts:
    names = {known.name for known in fields(TorchFacts)}
    return TorchFacts(**{name: value for name, value in found.items() if name in names})


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:MAX_ERROR_CHARS] if lines else ""
