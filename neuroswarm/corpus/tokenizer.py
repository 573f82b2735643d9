"""Text to token ids and back: bytes as they are, or a vocabulary of Hugging Face `tokenizers`.

Knows nothing of files of text or of models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from neuroswarm.corpus.manifest import BYTES, MAX_VOCAB_SIZE
from neuroswarm.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary


class Tokenizer(Protocol):
    """Makes token ids of text, the same on every machine."""

    @property
    def name(self) -> str:
        """`bytes`, or the SHA-256 of the vocabulary's file, hex: equal names mean equal ids."""
        ...

    @property
    def vocab_size(self) -> int:
        """Ids are from 0 to this, exclusive."""
        ...

    def encode(self, text: bytes) -> Tensor:
        """Ids of a text, 1-D, the smallest unsigned dtype that holds the vocabulary."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; what is no UTF-8 becomes U+FFFD."""
        ...

    def find(self, token: str) -> int:
        """The id of one token.

        Raises:
            DataError: there is no such token.
        """
        ...


class ByteTokenizer:
    """Every byte is its own id."""

    name = BYTES
    vocab_size = 256

    def encode(self, text: bytes) -> Tensor:
        """Ids of a text, uint8."""
        return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else _NOTHING

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; what is no UTF-8 becomes U+FFFD."""
        return bytes(ids).decode("utf-8", errors="replace")

    def find(self, token: str) -> int:
        """The byte of a text of one byte.

        Raises:
            DataError: it has another length.
        """
        data = token.encode()
        if len(data) != 1:
            raise DataError(f"{token!r} is {len(data)} bytes (one, with the byte tokenizer)")
        return data[0]


class FileTokenizer:
    """A `tokenizer.json` of Hugging Face `tokenizers`.

    Args:
        path: The file.

    Raises:
        DataError: the library is not installed, or the file is missing or none of its files.
    """

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError as error:
            raise DataError(
                f"the vocabulary {path} needs the library `tokenizers`: pip install neuroswarm[hf]"
            ) from error
        try:
            self.file = path.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read the vocabulary {path}: {error.strerror}") from error
        with _Translating(f"{path} is no tokenizer.json"):
            self._vocabulary: Vocabulary = Loaded.from_buffer(self.file)
        self.name = hashlib.sha256(self.file).hexdigest()
        self.vocab_size = 1 + max(self._vocabulary.get_vocab().values(), default=-1)
        if not 1 <= self.vocab_size <= MAX_VOCAB_SIZE:
            raise DataError(f"{path} has {self.vocab_size} tokens (1 to {MAX_VOCAB_SIZE})")
        self._dtype = dtype_for(self.vocab_size)

    def encode(self, text: bytes) -> Tensor:
        """Ids of a text without special tokens; what is no UTF-8 becomes U+FFFD first.

        Raises:
            DataError: the vocabulary has no token for a part of it.
        """
        decoded = text.decode("utf-8", errors="replace")
        with _Translating(
            "the vocabulary does not cover the text (take one with a token for what is unknown, or "
            "one on bytes)"
        ):
            ids = self._vocabulary.encode(decoded, add_special_tokens=False).ids
        return torch.tensor(ids, dtype=torch.int64).to(self._dtype)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._vocabulary.decode(list(ids), skip_special_tokens=False)

    def find(self, token: str) -> int:
        """The id of one token.

        Raises:
            DataError: there is no such token.
        """
        found = self._vocabulary.token_to_id(token)
        if found is None:
            raise DataError(f"the vocabulary has no token {token!r}")
        return found


class _Translating:
    """Turns what the library raises, which is `Exception` itself, into DataError."""

    def __init__(self, complaint: str) -> None:
        self._complaint = complaint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _trace: object) -> None:
        if kind in (Exception, ValueError):
            raise DataError(f"{self._complaint}: {error}")


def dtype_for(vocab_size: int) -> torch.dtype:
    """The smallest unsigned dtype that holds ids below `vocab_size`."""
    if vocab_size <= 1 << 8:
        return torch.uint8
    return torch.uint16 if vocab_size <= 1 << 16 else torch.uint32


_NOTHING = torch.empty(0, dtype=torch.uint8)
