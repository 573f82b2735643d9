"""Small files in which the kernel tells something; a missing one is empty."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 1024 * 1024
"""Of a file read at most; processors with hundreds of cores describe each of them."""


def read_text(path: Path) -> str:
    """What stands in a file, without white space around it; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
