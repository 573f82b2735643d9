"""The shards of one corpus that lie on this machine: in the user's folder, and fetched ones.

Fetched shards lie in a folder of this node alone, which is a folder of shards by itself; nothing
else is ever written or deleted, and the user's folder may be read-only. Knows nothing of peers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroswarm.corpus.manifest import (
    BYTES,
    MANIFEST,
    VOCABULARY,
    find_held,
    read_manifest,
    require_lengths,
)
from neuroswarm.corpus.shards import StoredShard, hash_file
from neuroswarm.data.assignment import ShardSize
from neuroswarm.data.bits import pack_bits
from neuroswarm.data.tokens import ShardTokens
from neuroswarm.errors import DataError
from neuroswarm.hardware.disk import sync

UNFINISHED = ".unfinished-"
"""Shards that are not whole have names that begin like this."""

_Signature = tuple[int, int, int]
"""Length, time of the last change and inode of a file."""


class ShardHolding:
    """Shards by their place in the corpus: training ones first, each kind as the manifest has it.

    Args:
        given: Folder with a manifest, of which nothing is changed.
        own: Folder for what is fetched, made when something is; None: nothing can be.

    Raises:
        DataError: the manifest cannot be used, or a shard in `given` has another length.

    Threads: any, but one shard is written by one at a time; methods block for the disk.
    """

    def __init__(self, given: Path, own: Path | None) -> None:
        self.path = given
        self.own = own
        self.manifest = read_manifest(given)
        found = find_held(given, self.manifest)
        require_lengths(given, self.manifest, found)
        self.shards = tuple(sorted(self.manifest.shards, key=lambda shard: shard.is_held_out))
        self.corpus = bytes.fromhex(self.manifest.id)
        names = {shard.name for shard in found}
        self.given = frozenset(i for i, shard in enumerate(self.shards) if shard.name in names)
        """Those in the user's folder."""
        self._by_hash = {bytes.fromhex(s.sha256): i for i, s in reversed([*enumerate(self.shards)])}
        self._lock = threading.Lock()
        self._read: dict[int, tuple[_Signature, bool]] = {}
        """Shards that were read to the end: how their files looked, and whether all was right."""
        self._withdrawn = frozenset[int]()
        self._told: tuple[tuple[frozenset[int], frozenset[int]], bytes] | None = None
        """What peers are told, and of which shards it was made."""
        self._fetched = frozenset(self._find_fetched())
        self.bytes_written = 0
        """Of shards, since the start."""

    @property
    def fetched(self) -> frozenset[int]:
        """Whole ones that this node has fetched."""
        return self._fetched

    @property
    def held(self) -> frozenset[int]:
        """All that are here, whole."""
        return self.given | self._fetched

    @property
    def num_train(self) -> int:
        """How many shards of the corpus are to train on."""
        return sum(not shard.is_held_out for shard in self.shards)

    @property
    def sizes(self) -> list[ShardSize]:
        """Of all shards."""
        return [ShardSize(self.num_bytes(i), s.is_held_out) for i, s in enumerate(self.shards)]

    def num_bytes(self, index: int) -> int:
        """Length of one shard."""
        return self.manifest.num_bytes(self.shards[index])

    def hash_of(self, index: int) -> bytes:
        """SHA-256 of one shard."""
        return bytes.fromhex(self.shards[index].sha256)

    # -- reading ---------------------------------------------------------------------

    def make_tokens(self, held: dict[int, StoredShard]) -> ShardTokens:
        """The corpus as tokens, with these shards of it."""
        return ShardTokens([shard.num_tokens for shard in self.shards], self.num_train, held)

    def open(self, index: int) -> StoredShard:
        """A shard that is here. DataError if it cannot be read, or has another length."""
        return StoredShard(self._find(index), self.manifest, self.shards[index])

    def held_bits(self) -> bytes:
        """One bit a shard, the lowest bit of a byte first."""
        told = (self._fetched, self._withdrawn)
        if self._told is None or self._told[0] != told:
            bits = pack_bits(self.held - self._withdrawn)
            self._told = told, bits.to_bytes((len(self.shards) + 7) // 8, "little")
        return self._told[1]

    def withdraw(self, index: int) -> None:
        """Give a shard to nobody any more: it is about to be removed."""
        with self._lock:
            self._withdrawn |= {index}

    def is_to_be_read(self, sha256: bytes) -> bool:
        """Whether `find` would read the whole file first: it was not yet, or has changed."""
        index = self._find_index(sha256)
        if index is None:
            return False
        try:
            return index not in self._read or self._read[index][0] != _sign(self._find(index))
        except OSError:
            return False

    def find(self, sha256: bytes) -> Path | None:
        """The file of a shard by its hash; None if it is not here, or its bytes are others now.

        Whoever gives wrong bytes is taken for a liar: a file is read once before it is given, and
        again when it has changed.
        """
        index = self._find_index(sha256)
        if index is None:
            return None
        path = self._find(index)
        try:
            if self.is_to_be_read(sha256):
                signature = _sign(path)
                self._read[index] = (signature, hash_file(path) == sha256.hex())
            known, is_right = self._read[index]
            return path if is_right and known == _sign(path) else None
        except (OSError, KeyError):
            return None  # deleted meanwhile, or not to be read: it is as if it were not here

    def _find_index(self, sha256: bytes) -> int | None:
        """The place of a shard that is here and stays."""
        index = self._by_hash.get(sha256)
        if index is None or index not in self.held or index in self._withdrawn:
            return None
        return index

    def has_bytes(self, index: int, offset: int, data: bytes) -> bool:
        """Whether these are the bytes of a shard that is here, from there on.

        Raises:
            DataError: its file cannot be read.
        """
        with _naming("read", self._find(index)) as path, path.open("rb") as file:
            file.seek(offset)
            return file.read(len(data)) == data

    def _find(self, index: int) -> Path:
        name = self.shards[index].name
        return (self.path if index in self.given or self.own is None else self.own) / name

    # -- what is fetched -------------------------------------------------------------

    def received(self, index: int) -> int:
        """Bytes of an unfinished shard that are here. DataError if the disk refuses."""
        with _naming("read", self._unfinished(index)) as path:
            try:
                found = path.stat().st_size
            except FileNotFoundError:
                return 0
        return found if found <= self.num_bytes(index) else 0

    def write(self, index: int, offset: int, data: bytes) -> None:
        """Put bytes of an unfinished shard into their place, behind what is there.

        Raises:
            DataError: the disk does not take them.
        """
        with _naming("write", self._unfinished(index)) as path:
            with self._lock:
                self._require_folder()
            with path.open("r+b" if offset else "wb") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)
        with self._lock:
            self.bytes_written += len(data)

    def finish(self, index: int) -> bool:
        """Hold a shard all of whose bytes are here against its hash; whether it is right.

        A right one is on the disk, durably, and held from now on; a wrong one is deleted.

        Raises:
            DataError: the disk refuses; the bytes are still here.
        """
        with _naming("write", self._unfinished(index)) as path:
            if hash_file(path) != self.shards[index].sha256:
                path.unlink()
                return False
            sync(path)
            path.rename(self._own() / self.shards[index].name)
            sync(self._own())
        with self._lock:
            self._fetched |= {index}
        return True

    def discard(self, index: int) -> None:
        """Delete what is here of an unfinished shard. DataError if the disk refuses."""
        with _naming("delete", self._unfinished(index)) as path:
            path.unlink(missing_ok=True)

    def unfinished(self) -> frozenset[int]:
        """The shards of which a part is here."""
        names = {f"{UNFINISHED}{shard.name}": i for i, shard in enumerate(self.shards)}
        return frozenset(names[name] for name in self._list() if name in names)

    def remove(self, index: int) -> None:
        """Delete a fetched shard. DataError if the disk refuses; it is held no more anyway."""
        if index not in self._fetched:
            raise ValueError(f"shard {index} was not fetched by this node")
        with self._lock:
            self._fetched -= {index}
            self._withdrawn -= {index}
        with _naming("delete", self._own() / self.shards[index].name) as path:
            path.unlink(missing_ok=True)

    def _find_fetched(self) -> Iterator[int]:
        """Whole ones of a former life: what has this name was checked, only its length may be off.

        What is no whole shard after all is deleted, so that it is fetched again.
        """
        names = set(self._list())
        for index, shard in enumerate(self.shards):
            if shard.name in names and index not in self.given:
                with _naming("read", self._own() / shard.name) as path:
                    if path.stat().st_size == self.num_bytes(index):
                        yield index
                    else:
                        path.unlink()

    def _list(self) -> list[str]:
        if self.own is None or not self.own.is_dir():
            return []
        with _naming("list", self.own) as path:
            return os.listdir(path)

    def _unfinished(self, index: int) -> Path:
        return self._own() / f"{UNFINISHED}{self.shards[index].name}"

    def _own(self) -> Path:
        if self.own is None:
            raise DataError(f"{self.path}: there is no folder for shards that are fetched")
        return self.own

    def _require_folder(self) -> None:
        """Make the folder, with manifest and vocabulary, so that it can be looked at by itself."""
        own = self._own()
        if (own / MANIFEST).is_file():
            return
        own.mkdir(parents=True, exist_ok=True)
        if self.manifest.tokenizer != BYTES:
            with contextlib.suppress(FileNotFoundError):  # a node trains without
                shutil.copyfile(self.path / VOCABULARY, own / VOCABULARY)
        temporary = own / f".{MANIFEST}"
        temporary.write_bytes(self.manifest.encode())
        sync(temporary)
        temporary.rename(own / MANIFEST)


def find_corpus(given: Path, shards: Path) -> Path:
    """The folder for fetched shards of a corpus, within that for those of all corpora."""
    return shards / read_manifest(given).id[:16]


def _sign(path: Path) -> _Signature:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


@contextmanager
def _naming(what: str, path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise DataError(f"cannot {what} {path}: {error.strerror or error}") from error
