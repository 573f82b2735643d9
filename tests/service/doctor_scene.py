"""Runs `neuroswarm doctor` as a process, and keeps what it said in docs/doctor.md.

`WRITE_FIXTURE=1` writes the page's transcripts anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from neuroswarm.doctor.finding import Level

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
DEADLINE_S = 900
"""For one run; torch is imported and trains a few steps on a machine that may be busy."""

LEVELS = frozenset(level.value for level in Level)


@dataclass(frozen=True)
class Transcript:
    """What one run said."""

    command: str
    lines: tuple[str, ...]
    code: int

    def level(self, check: str) -> str:
        """The worst level of a check's lines."""
        order = ("skip", "ok", "warn", "fail")
        return max((line.split()[0] for line in self.of(check)), key=order.index)

    def of(self, check: str) -> list[str]:
        """The lines of one check."""
        return [line for line in self.lines if line.split()[1] == check]

    @property
    def checks(self) -> list[str]:
        """The check of each line."""
        return [line.split()[1] for line in self.lines if line.split()[0] in LEVELS]

    def __str__(self) -> str:
        text = "\n".join((f"$ {self.command}", *self.lines, "$ echo $?", str(self.code)))
        return f"```\n{text}\n```"


def run_doctor(*arguments: str, shown: str, before: Sequence[str] = (), folder: Path) -> Transcript:
    """Run the doctor as users do.

    Args:
        arguments: Its flags.
        shown: The command as the page shows it.
        before: What stands before it on the command line, like `unshare`.
        folder: Home of the process; what it says of it is shown as `~`.
    """
    command = [*before, sys.executable, "-m", "neuroswarm", "doctor", *arguments]
    kept = {name: value for name, value in os.environ.items() if "NEUROSWARM" not in name}
    done = subprocess.run(
        command,
        env={**kept, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert "Traceback" not in done.stdout
    said = done.stdout.replace(str(folder), "~").replace(f" {folder}", " ~")
    return Transcript(shown, tuple(said.splitlines()), done.returncode)


def compare(name: str, transcript: Transcript, telling: Sequence[str]) -> None:
    """Hold a transcript against the page's: the same checks, the same words in `telling` ones.

    Numbers differ from machine to machine; so do the words of all other checks.
    """
    if os.environ.get("WRITE_FIXTURE"):
        _write(name, transcript)
    kept = _read(name)
    assert transcript.checks == kept.checks
    for check in telling:
        assert _plain(transcript.of(check)) == _plain(kept.of(check))
    assert transcript.code == kept.code


def require(command: Sequence[str], what: str) -> None:
    """Skip the test where a command does not work, as root's do for others."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip(f"{what}: there is no {command[0]}")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        pytest.skip(f"{what}: {reason}")


def _plain(lines: Sequence[str]) -> list[str]:
    return [re.sub(r"[0-9a-f]{8}|\d+(\.\d+)*", "N", line) for line in lines]


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _read(name: str) -> Transcript:
    found = _block(name).search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"docs/doctor.md has no transcript {name!r}"
    first, *lines, _, code = found[2].strip().strip("`").strip().splitlines()
    return Transcript(first.removeprefix("$ "), tuple(lines), int(code))


def _write(name: str, transcript: Transcript) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = f"\\g<1>{str(transcript).replace(chr(92), chr(92) * 2)}\n\\g<3>"
    new, count = _block(name).subn(block, text)
    assert count == 1, f"docs/doctor.md has {count} places for {name!r}"
    PAGE.write_text(new, encoding="utf-8")
