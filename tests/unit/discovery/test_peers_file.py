from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.discovery.peers_file import (
    MAX_FILE_BYTES,
    MAX_KEPT,
    Acquaintance,
    decode_acquaintances,
    encode_acquaintances,
)
from neuroswarm.errors import CheckpointError
from neuroswarm.values import Endpoint, NodeId


def acquaintance(number: int, host: str = "10.0.0.1") -> Acquaintance:
    return Acquaintance(NodeId(number.to_bytes(20, "big")), Endpoint(host, 9999))


def test_what_was_written_is_read():
    known = [acquaintance(1), acquaintance(2, "2001:db8::2"), acquaintance(3, "node.example")]
    assert decode_acquaintances(encode_acquaintances(known)) == known


def test_the_first_ones_are_kept_and_fit():
    known = [acquaintance(i, f"{'a' * 60}.{'b' * 60}.{'c' * 60}.example") for i in range(100)]
    data = encode_acquaintances(known)
    assert decode_acquaintances(data) == known[:MAX_KEPT]
    assert len(data) <= MAX_FILE_BYTES // 2


GOOD = {"node_id": "00" * 20, "host": "10.0.0.1", "heartbeat_port": 9999}


@pytest.mark.parametrize(
    "change",
    [
        {"node_id": "00" * 19},
        {"node_id": "zz" * 20},
        {"node_id": None},
        {"host": "unix:/socket"},
        {"host": 7},
        {"host": "fe80::1%eth0"},
        {"heartbeat_port": 0},
        {"heartbeat_port": 65536},
        {"heartbeat_port": "9999"},
        {"heartbeat_port": True},
    ],
)
def test_a_wrong_line_makes_the_file_a_damaged_one(change):
    data = json.dumps({"version": 1, "peers": [GOOD | change]}).encode()
    with pytest.raises(CheckpointError, match="damaged"):
        decode_acquaintances(data)


def test_a_file_of_a_later_version_is_left_alone():
    with pytest.raises(CheckpointError, match="version 2"):
        decode_acquaintances(b'{"version": 2, "peers": []}')


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b"[" * 60_000, b'{"version": 1}'])
def test_something_else_is_damaged(data):
    with pytest.raises(CheckpointError, match="damaged"):
        decode_acquaintances(data)


def test_a_long_file_is_not_parsed():
    with pytest.raises(CheckpointError, match="limit 65536"):
        decode_acquaintances(b" " * (MAX_FILE_BYTES + 1))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(CheckpointError):
        decode_acquaintances(data)
