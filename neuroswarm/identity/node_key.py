"""A node's Ed25519 key, made once and kept in its state folder.

Refuses to know what is signed with it.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from neuroswarm.errors import ConfigError
from neuroswarm.hardware.disk import sync, take_from_others
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

_MAX_KEY_FILE_BYTES = 4096


class NodeKey:
    """An Ed25519 private key with the node id that follows from it."""

    def __init__(self, private_key: Ed25519PrivateKey, *, is_new: bool = False) -> None:
        self._private_key = private_key
        self.is_new = is_new
        """Made just now, so that nobody else can have it."""
        self.public_key: bytes = private_key.public_key().public_bytes_raw()
        self.node_id: NodeId = NodeId.of_key(self.public_key)

    @classmethod
    def generate(cls) -> NodeKey:
        """A new key from the operating system's randomness, kept nowhere."""
        return cls(Ed25519PrivateKey.generate(), is_new=True)

    @classmethod
    def load_or_create(cls, path: Path) -> NodeKey:
        """Read the key at `path`, or make one there (PKCS 8 PEM, mode 0600) if there is none.

        Args:
            path: The key file; its folder exists.

        Raises:
            ConfigError: the file is no Ed25519 key, or it cannot be read or written.
        """
        try:
            return cls(_read(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ConfigError(f"cannot read the node key {path}: {error.strerror}") from error
        key = Ed25519PrivateKey.generate()
        try:
            _write(path, key)
        except OSError as error:
            raise ConfigError(f"cannot write the node key {path}: {error.strerror}") from error
        return cls(key, is_new=True)

    @staticmethod
    def set_aside(path: Path) -> Path:
        """Move the key at `path` away, so that the next start makes a new one; returns where.

        Raises:
            ConfigError: it cannot be moved.
        """
        number = 1
        while (aside := path.with_name(f"{path.name}.cloned-{number}")).exists():
            number += 1
        try:
            path.rename(aside)
        except OSError as error:
            raise ConfigError(f"cannot move the node key {path} away: {error.strerror}") from error
        return aside

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature of `message`, 64 bytes."""
        return self._private_key.sign(message)

    def __repr__(self) -> str:
        return f"<NodeKey {self.node_id}>"


def _read(path: Path) -> Ed25519PrivateKey:
    with path.open("rb") as file:
        key = _parse(path, file.read(_MAX_KEY_FILE_BYTES))
        if take_from_others(file.fileno()):
            logger.warning("node key %s could be read by others: its mode is now 0600", path)
    return key


def _parse(path: Path, data: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _damaged(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged(path)
    return key


def _write(path: Path, key: Ed25519PrivateKey) -> None:
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync(path.parent)


def _damaged(path: Path) -> ConfigError:
    return ConfigError(
        f"damaged node key: {path} holds no Ed25519 private key "
        "(restore it, or move it away to start with a new identity)"
    )
