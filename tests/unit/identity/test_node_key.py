"""Node keys: made once, kept private, never silently replaced."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from neuroswarm.errors import ConfigError
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import NodeId


def test_signature_verifies_under_the_public_key_and_the_id_follows_from_it():
    key = NodeKey.generate()
    Ed25519PublicKey.from_public_bytes(key.public_key).verify(key.sign(b"text"), b"text")
    assert key.node_id == NodeId.of_key(key.public_key)


def test_key_is_kept_in_a_private_file_and_read_again(tmp_path: Path):
    path = tmp_path / "node.key"
    first = NodeKey.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert NodeKey.load_or_create(path).public_key == first.public_key
    assert [p.name for p in tmp_path.iterdir()] == ["node.key"]


def test_file_that_others_may_read_is_made_private(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "node.key"
    first = NodeKey.load_or_create(path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert NodeKey.load_or_create(path).node_id == first.node_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [r.message for r in caplog.records] == [
        f"node key {path} could be read by others: its mode is now 0600"
    ]


def make_foreign_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "other kind"])
def test_damaged_key_is_refused_and_left_as_it_is(tmp_path: Path, damage: str):
    path = tmp_path / "node.key"
    NodeKey.load_or_create(path)
    whole = path.read_bytes()
    bad = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "garbage": bytes(range(256)),
        "other kind": make_foreign_key(),
    }[damage]
    path.write_bytes(bad)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"damaged node key: .*node\.key .*\(restore it"):
        NodeKey.load_or_create(path)
    assert path.read_bytes() == bad
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "it may be another file of the user's"


def test_missing_folder_and_folder_in_place_of_the_file_are_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot write the node key"):
        NodeKey.load_or_create(tmp_path / "nowhere" / "node.key")
    with pytest.raises(ConfigError, match="cannot read the node key"):
        NodeKey.load_or_create(tmp_path)


def test_repr_shows_no_secret():
    key = NodeKey.generate()
    assert repr(key) == f"<NodeKey {key.node_id}>"
