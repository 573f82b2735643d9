"""Keeps the runs that a benchmark has finished, so that it goes on where it was stopped.

Knows which file holds them and which of them still count; refuses to know what a run is about.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import neuroswarm
from neuroswarm.bench.jobs import JobType, Result
from neuroswarm.errors import ConfigError


class FinishedRuns:
    """A JSON line for each finished run, in a file beside the report.

    A run counts again only for the same job, text, libraries and source of this package.

    Args:
        path: The file; None keeps nothing.
        circumstances: JSON values on which results hang, other than the job and our source.
    """

    def __init__(self, path: Path | None, circumstances: Any) -> None:
        self.path = path
        self._common = json.dumps([_source_digest(), circumstances], sort_keys=True)

    def load(self, jobs: Iterable[JobType]) -> list[Result[JobType]]:
        """The finished ones of these jobs.

        Raises:
            ConfigError: The file cannot be read.
        """
        if self.path is None:
            return []
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {self.path}: {error}; remove it") from error
        entries = [entry for entry in map(_parse, lines) if entry is not None]
        found = {entry["key"]: entry for entry in entries}
        keys = ((job, self._key(job)) for job in jobs)
        return [_to_result(job, found[key]) for job, key in keys if key in found]

    def add(self, result: Result[Any]) -> None:
        """Keep one more."""
        if self.path is None:
            return
        entry = {
            "key": self._key(result.job),
            "run": str(result.job),
            "loss": result.loss if math.isfinite(result.loss) else None,
            "seconds": result.seconds,
            "details": result.details,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(entry, allow_nan=False) + "\n")

    def _key(self, job: Any) -> str:
        fields = dataclasses.asdict(job) | {"rules": job.rules.model_dump(mode="json")}
        text = self._common + json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _parse(line: str) -> dict[str, Any] | None:
    """None for a line that a stop cut short."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "key" in entry else None


def _to_result(job: JobType, entry: dict[str, Any]) -> Result[JobType]:
    loss = math.inf if entry["loss"] is None else float(entry["loss"])
    return Result(job, loss, entry["seconds"], entry["details"])


def _source_digest() -> str:
    folder = Path(neuroswarm.__file__).parent
    parts = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        parts.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return parts.hexdigest()
