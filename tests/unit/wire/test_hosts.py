from __future__ import annotations

import pytest

from neuroswarm.wire import limits
from neuroswarm.wire.hosts import is_host


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1",
        "::1",
        "3.node",
        "node.3",
        "2001:db8::7",
        "localhost",
        "a.example",
        "node_3.swarm-1",
        "x" * 63,
    ],
)
def test_addresses_and_names_are_hosts(text: str):
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a b",
        "a\nb",
        "a\0b",
        "a..b",
        ".a",
        "-a",
        "a-",
        "x" * 64,
        ".".join(["x" * 62] * 5),
        "h\u00f6st",
        "fe80::1%eth0",
        "fe80::1%a\0b",
        "unix:/run/docker.sock",
        "dns:///a.example",
        "ipv4:10.0.0.1:1,10.0.0.2",
        "[::1]",
        "user@a.example",
        "a.example/path",
        "127.1",
        "2130706433",
        "0x7f.1",
        "224.0x1",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "224.0.0.1",
        "ff02::1",
        "::ffff:224.0.0.1",
        "300.300.300.300",
        "10.1",
        "10.0.0.1.1",
    ],
)
def test_what_a_resolver_socket_or_url_would_read_otherwise_is_none(text: str):
    assert not is_host(text)


def test_the_longest_name_is_one():
    text = ".".join(["x" * 63, "x" * 63, "x" * 63, "x" * 61])
    assert len(text) == limits.MAX_HOST_CHARS
    assert is_host(text)
