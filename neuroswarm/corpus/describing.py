"""Makes a folder that says what a corpus is without holding it: manifest and vocabulary, no shard.

A node that is given such a folder fetches the shards from its peers.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from neuroswarm.corpus.manifest import BYTES, MANIFEST, VOCABULARY, Manifest, read_manifest
from neuroswarm.corpus.shards import hash_file
from neuroswarm.errors import DataError
from neuroswarm.hardware.disk import sync


def describe(folder: Path, to: Path) -> Manifest:
    """Copy what describes a corpus: whole, or not at all.

    Args:
        folder: Folder with a manifest; its shards need not be there.
        to: The folder to make; must not exist, or be empty.

    Raises:
        DataError: there is no manifest, the vocabulary is not the one that made the shards, or `to`
            is in use.
        OSError: something cannot be read or written; nothing is left of it.
    """
    manifest = read_manifest(folder)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise DataError(f"{to} exists and is not empty: give a new folder (--to), or remove it")
    names = [MANIFEST]
    if manifest.tokenizer != BYTES:
        _require_vocabulary(folder / VOCABULARY, manifest)
        names.append(VOCABULARY)
    to.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
        undo.callback(shutil.rmtree, unfinished, ignore_errors=True)
        unfinished.chmod(0o755)
        for name in names:
            shutil.copyfile(folder / name, unfinished / name)
            sync(unfinished / name)
        sync(unfinished)
        unfinished.rename(to)
        undo.pop_all()
        sync(to.parent)
    return manifest


def _require_vocabulary(path: Path, manifest: Manifest) -> None:
    if not path.is_file():
        raise DataError(f"{path}, the vocabulary that made the shards, is missing")
    if hash_file(path) != manifest.tokenizer:
        raise DataError(f"{path} is not the vocabulary that made the shards")
