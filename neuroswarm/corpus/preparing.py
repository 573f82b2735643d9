"""Makes a folder of token shards out of texts: whole, or not at all.

Tokens go to one temporary file first, since only their number tells where to cut them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from neuroswarm.corpus.manifest import MANIFEST, VOCABULARY, Manifest, Shard
from neuroswarm.corpus.text_files import find_text_files, is_binary
from neuroswarm.corpus.tokenizer import FileTokenizer, Tokenizer, dtype_for
from neuroswarm.data.tokens import Ranges, split_tokens
from neuroswarm.errors import DataError
from neuroswarm.hardware.disk import sync

DEFAULT_SHARD_BYTES = 16 * 1024 * 1024
MIN_WINDOW_TOKENS = 64
"""Least length of a held-out piece."""

PIECE_BYTES = 1024 * 1024
"""Text that is tokenised at once; longer files are cut after a line."""

_COPY_BYTES = 1024 * 1024


@dataclass(slots=True)
class Progress:
    """How far it is."""

    num_files: int = 0
    num_skipped: int = 0
    """Files that are no text."""
    text_bytes: int = 0
    num_tokens: int = 0


def prepare(
    sources: Iterable[Path],
    out: Path,
    tokenizer: Tokenizer,
    *,
    separator: int | None = None,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Manifest:
    """Tokenise texts and write shards; each 20th piece of 64 Ki tokens is held out.

    The same texts, tokenizer and arguments give the same bytes on every machine.

    Args:
        sources: Text files, and folders of them, in this order.
        out: The folder to make; must not exist, or be empty.
        tokenizer: Makes the tokens.
        separator: Token put after every file; None for none.
        shard_bytes: Length of a shard; the last ones are shorter.
        on_progress: Told after every piece of text.

    Returns:
        What was written.

    Raises:
        DataError: there is no text or too little, or `out` is in use.
        OSError: something cannot be read or written; nothing is left of it.

    Cost: twice the disk space of the tokens while it runs.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is not empty: give a new folder (--out), or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo, _naming(out):
        unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        undo.callback(shutil.rmtree, unfinished, ignore_errors=True)
        unfinished.chmod(0o755)
        progress = Progress()
        whole = unfinished / "all"
        _write_durably(whole, _tokenise(sources, tokenizer, separator, progress, on_progress))
        manifest = _cut(whole, unfinished, tokenizer, progress.num_tokens, shard_bytes)
        whole.unlink()
        if isinstance(tokenizer, FileTokenizer):
            _write_durably(unfinished / VOCABULARY, [tokenizer.file])
        _write_durably(unfinished / MANIFEST, [manifest.encode()])
        sync(unfinished)
        unfinished.rename(out)
        undo.pop_all()
        sync(out.parent)
    return manifest


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    """Say in errors of the disk where it was written to: a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(out)
        raise


def _tokenise(
    sources: Iterable[Path],
    tokenizer: Tokenizer,
    separator: int | None,
    progress: Progress,
    on_progress: Callable[[Progress], None],
) -> Iterator[bytes]:
    """The tokens of all texts as bytes, piece by piece."""
    width = dtype_for(tokenizer.vocab_size).itemsize
    end = b"" if separator is None else separator.to_bytes(width, "little")
    for path in (path for source in sources for path in find_text_files(source)):
        is_text = False
        for piece in _read_pieces(path):
            if not is_text and is_binary(piece):
                break
            is_text = True
            ids = _to_bytes(tokenizer.encode(piece))
            progress.text_bytes += len(piece)
            progress.num_tokens += len(ids) // width
            yield ids
            on_progress(progress)
        progress.num_files += is_text
        progress.num_skipped += not is_text
        if is_text:
            progress.num_tokens += separator is not None
            yield end


def _read_pieces(path: Path) -> Iterator[bytes]:
    """A file in pieces that end with a line, so that no word is cut in two."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece + file.readline(PIECE_BYTES)


def _to_bytes(ids: Tensor) -> bytes:
    array = ids.numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _cut(
    whole: Path, folder: Path, tokenizer: Tokenizer, num_tokens: int, shard_bytes: int
) -> Manifest:
    """Cut one file of tokens into shards to train on and shards held out."""
    if not num_tokens:
        raise DataError("no text: give text files, or folders with text files")
    held_out = split_tokens(num_tokens, MIN_WINDOW_TOKENS).held_out
    ends = [0, *(end for _, end in held_out)]
    starts = [*(start for start, _ in held_out), num_tokens]
    train = tuple(zip(ends, starts, strict=True))  # all between: no token is lost
    width = dtype_for(tokenizer.vocab_size).itemsize
    shard_tokens = max(MIN_WINDOW_TOKENS, shard_bytes // width)
    shards = []
    with whole.open("rb") as file:
        for kind, ranges in (("train", train), ("held-out", held_out)):
            for index, pieces in enumerate(_deal(ranges, shard_tokens)):
                name = f"{kind}-{index:05}.tokens"
                copied = (piece for p in pieces for piece in _read_range(file, p, width))
                sha256 = _write_durably(folder / name, copied)
                length = sum(end - start for start, end in pieces)
                shards.append(Shard(name=name, num_tokens=length, sha256=sha256))
    return Manifest(tokenizer=tokenizer.name, vocab_size=tokenizer.vocab_size, shards=shards)


def _deal(ranges: Ranges, shard_tokens: int) -> Iterator[list[tuple[int, int]]]:
    """Ranges joined and cut into shards; a last one shorter than a window joins the one before."""
    shards: list[list[tuple[int, int]]] = [[]]
    room = shard_tokens
    for start, end in ranges:
        at = start
        while at < end:
            if not room:
                shards.append([])
                room = shard_tokens
            stop = min(end, at + room)
            shards[-1].append((at, stop))
            room -= stop - at
            at = stop
    if len(shards) > 1 and shard_tokens - room < MIN_WINDOW_TOKENS:
        rest = shards.pop()
        shards[-1].extend(rest)
    return iter(shards)


def _read_range(file: BinaryIO, piece: tuple[int, int], width: int) -> Iterator[bytes]:
    file.seek(piece[0] * width)
    left = (piece[1] - piece[0]) * width
    while left:
        data = file.read(min(left, _COPY_BYTES))
        if not data:
            raise DataError(f"{file.name} is shorter than what was written: is the disk sound?")
        left -= len(data)
        yield data


def _write_durably(path: Path, parts: Iterable[bytes]) -> str:
    """Write a new file and wait until it is on the disk; SHA-256 of its bytes, hex."""
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for part in parts:
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
