"""Whether there is something to train on: read without torch, then judged.

Of token shards it reads the manifest and their lengths; `neuroswarm data verify` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroswarm.corpus.manifest import (
    find_held,
    find_usable,
    is_shard_folder,
    read_manifest,
    require_lengths,
)
from neuroswarm.corpus.text_files import find_text_files, is_binary
from neuroswarm.doctor.finding import Finding, fail, ok, show_bytes
from neuroswarm.errors import DataError
from neuroswarm.values import counted

DATA = "data"

_BEGINNING_BYTES = 8192


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What a node would read."""

    source: str
    num_bytes: int = 0
    """Of its texts, up to what a node reads."""
    num_files: int = 0
    is_shards: bool = False
    num_missing: int = 0
    """Shards that are not there, and that a node would fetch from its peers."""
    failure: str = ""
    """Why it cannot be read."""


def read_data(path: Path | None, max_bytes: int, *, may_fetch: bool) -> DataFacts:
    """Look at the beginning of each text that a node would read.

    Args:
        path: The setting `data.path`; None for the source of Python's standard library.
        max_bytes: The setting `data.max_bytes`.
        may_fetch: The setting `data.fetch`: whether missing shards come from peers.
    """
    source = "the Python standard library" if path is None else str(path)
    num_bytes = num_files = 0
    try:
        if path is not None and is_shard_folder(path):
            return _read_shards(path, may_fetch=may_fetch)
        for file in find_text_files(path):
            with file.open("rb") as opened:
                beginning = opened.read(_BEGINNING_BYTES)
            if beginning and not is_binary(beginning):
                num_bytes += file.stat().st_size
                num_files += 1
            if num_bytes >= max_bytes:
                break
    except DataError as error:
        return DataFacts(source, failure=str(error).partition(" (")[0])
    except OSError as error:
        reason = f"cannot read {error.filename}: {error.strerror}"
        return DataFacts(source, failure=reason)
    return DataFacts(source, min(num_bytes, max_bytes), num_files)


def _read_shards(path: Path, *, may_fetch: bool) -> DataFacts:
    """What is there of token shards; DataError if a node would refuse them."""
    manifest = read_manifest(path)
    held = find_held(path, manifest)
    if not may_fetch:
        find_usable(path, manifest)
        return DataFacts(str(path), is_shards=True)
    require_lengths(path, manifest, held)
    return DataFacts(str(path), is_shards=True, num_missing=len(manifest.shards) - len(held))


def judge_data(facts: DataFacts, needed_bytes: int) -> Finding:
    """Whether a node can train on it.

    Args:
        facts: What was found.
        needed_bytes: The shortest text that a node takes: two windows.
    """
    fix = "give a text file, a folder of them or one of token shards with --data"
    if facts.failure:
        return fail(DATA, facts.failure, fix)
    if facts.is_shards:
        what = f"token shards in {facts.source} (`neuroswarm data verify` checks them)"
        missing = counted(facts.num_missing, "shard")
        return ok(
            DATA, f"{what}; {missing} to be fetched from peers" if facts.num_missing else what
        )
    if facts.num_bytes == 0:
        return fail(DATA, f"no text in {facts.source}", fix)
    if facts.num_bytes < needed_bytes:
        return fail(
            DATA,
            f"too little text in {facts.source}: {counted(facts.num_bytes, 'byte')} (at least "
            f"{needed_bytes}, two windows of training.context)",
            f"{fix}, or lower training.context",
        )
    size = show_bytes(facts.num_bytes) if facts.num_bytes >= 10**6 else f"{facts.num_bytes} bytes"
    return ok(DATA, f"{size} of text in {counted(facts.num_files, 'file')} of {facts.source}")
