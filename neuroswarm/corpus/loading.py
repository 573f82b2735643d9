"""What to train on, from files: shards that were prepared, or text whose bytes are the tokens.

Knows nothing of windows, batches or nodes (`neuroswarm.data.sampler`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from neuroswarm.corpus.manifest import is_shard_folder
from neuroswarm.corpus.shards import ShardFolder
from neuroswarm.corpus.text_files import find_text_files, is_binary
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens, Tokens
from neuroswarm.errors import DataError
from neuroswarm.values import counted

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
BYTE_VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Corpus:
    """Tokens, and where they came from.

    Args:
        tokens: The tokens.
        source: For logs and status, such as a path.
        vocab_size: Ids are below it.
    """

    tokens: Tokens
    source: str
    vocab_size: int = BYTE_VOCABULARY

    def sampler(self, *, context: int, batch_size: int, seed: int) -> WindowSampler:
        """Its windows; see `WindowSampler` for arguments and errors."""
        return WindowSampler(self.tokens, context=context, batch_size=batch_size, seed=seed)


def load_corpus(path: Path | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Corpus:
    """Open a folder of token shards, or read text as `read_text` does.

    Args:
        path: Folder made by `neuroswarm data prepare`, text file, or folder of text files; None
            takes the source of the running Python's standard library.
        max_bytes: Where reading of text stops; shards stay on the disk and have no limit.

    Raises:
        DataError: nothing is there, nothing in it is text, or it cannot be read.

    Cost: blocks on the disk; memory of a text once, of shards none.
    """
    with _naming_what_cannot_be_read():
        is_prepared = path is not None and is_shard_folder(path)
    if path is not None and is_prepared:
        folder = ShardFolder(path)
        tokens = folder.open_tokens()
        logger.info("opened %d of %d shards", len(folder.held), len(folder.manifest.shards))
        return Corpus(tokens, str(path), folder.manifest.vocab_size)
    source = "the Python standard library" if path is None else str(path)
    return Corpus(FlatTokens(read_text(path, max_bytes=max_bytes)), source)


def read_text(path: Path | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Tensor:
    """Read a text file, or all text files of a folder in order of their paths: uint8 [N].

    Of a folder, hidden files and folders, links to folders and files with a zero byte in their
    first 8 KiB are left out. Files are joined as they are.

    Args:
        path: File or folder; None takes the source of the running Python's standard library,
            which every machine has (without its tests).
        max_bytes: Where reading stops; a warning says so.

    Raises:
        DataError: nothing is there, nothing in it is text, or it cannot be read.
    """
    source = "the Python standard library" if path is None else str(path)
    with _naming_what_cannot_be_read():
        data, num_files = _read(find_text_files(path), source, max_bytes)
    if not data:
        hint = "give a text file or a folder with text files (--data PATH)"
        raise DataError(f"no text in {source}: {hint}")
    size, files = counted(len(data), "byte"), counted(num_files, "file")
    logger.info("read %s of text from %s of %s", size, files, source)
    return torch.frombuffer(data, dtype=torch.uint8)


@contextmanager
def _naming_what_cannot_be_read() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error


def _read(files: Iterable[Path], source: str, max_bytes: int) -> tuple[bytearray, int]:
    data = bytearray()
    num_files = 0
    for path in files:
        room = max_bytes - len(data)
        with path.open("rb") as file:
            text = file.read(room + 1)
        if is_binary(text):
            continue
        num_files += 1
        data += text[:room]
        if len(text) > room:
            logger.warning(
                "read only the first %d bytes of %s (data.max_bytes; `neuroswarm data prepare` "
                "makes shards that have no limit)",
                max_bytes,
                source,
            )
            break
    return data, num_files
