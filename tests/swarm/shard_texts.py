"""Folders of token shards that the tiny model of a `Swarm` can train on."""

from __future__ import annotations

from pathlib import Path

from neuroswarm.corpus.describing import describe
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.tokenizer import ByteTokenizer
from neuroswarm.testing.tiny_workload import tiny_text

SHARD_BYTES = 20_000


def make_shards(folder: Path, *, num_bytes: int = 200_000) -> Path:
    """A whole corpus: ids from 1 to 31, so that it is text; shards of 20 kB."""
    text = folder / "text"
    text.write_bytes(bytes(max(1, int(token)) for token in tiny_text(num_bytes)))
    prepare([text], folder / "whole", ByteTokenizer(), shard_bytes=SHARD_BYTES)
    return folder / "whole"


def make_empty(whole: Path, folder: Path) -> Path:
    """A folder that only describes that corpus."""
    describe(whole, folder)
    return folder
