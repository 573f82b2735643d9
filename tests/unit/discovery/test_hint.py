from __future__ import annotations

import re

import pytest

from neuroswarm.discovery.hint import Hint, Way, read_hints
from neuroswarm.errors import ConfigError
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://10.0.0.5:7101", "http://10.0.0.5:7101/v1/tracker"),
        ("http://tracker.example/", "http://tracker.example:7100/v1/tracker"),
        ("tracker.example:7200", "http://tracker.example:7200/v1/tracker"),
        ("http://[::1]:7101", "http://[::1]:7101/v1/tracker"),
        ("::1", "http://[::1]:7100/v1/tracker"),
        ("https://a.example:443/v1/tracker", "https://a.example:443/v1/tracker"),
    ],
)
def test_a_tracker_is_read_with_or_without_scheme_and_port(text, url):
    hint = Hint.parse(text)
    assert hint.way is Way.TRACKER
    assert hint.url_at(hint.endpoint) == url
    assert str(hint) == f"tracker {url}"
    assert hint == Hint.parse(url)


@pytest.mark.parametrize(
    ("text", "asked", "greeted", "said"),
    [
        ("10.0.0.5", Endpoint("10.0.0.5", 7101), 9999, "peer 10.0.0.5:9999"),
        ("10.0.0.5:9001", Endpoint("10.0.0.5", 9001), 9001, "peer 10.0.0.5:9001"),
        ("a.example:7101", Endpoint("a.example", 7101), 7101, "peer a.example:7101"),
        ("[2001:db8::1]:9", Endpoint("2001:db8::1", 9), 9, "peer [2001:db8::1]:9"),
        ("2001:db8::1", Endpoint("2001:db8::1", 7101), 9999, "peer [2001:db8::1]:9999"),
        ("dns://tasks.node:7102", Endpoint("tasks.node", 7102), 7102, "dns://tasks.node:7102"),
        ("dns://tasks.node", Endpoint("tasks.node", 7101), 9999, "dns://tasks.node:9999"),
    ],
)
def test_a_peer_is_greeted_and_asked_at_its_one_port_or_at_the_usual_ones(
    text, asked, greeted, said
):
    hint = Hint.parse_peer(text)
    assert (hint.endpoint, hint.greeted_port, str(hint)) == (asked, greeted, said)
    assert hint.way is (Way.NAME if text.startswith("dns") else Way.PEER)


def test_a_name_may_be_given_as_a_tracker_or_as_a_peer():
    assert Hint.parse("dns://tasks.node:7101") == Hint.parse_peer("dns://tasks.node:7101")


NO_ADDRESSES = [
    "",
    "http://",
    "ftp://a:1",
    "http://a:port",
    "http://a:99999",
    "http://a:0",
    "a/b",
    "a..b",
    "a b",
    "dns://",
    "fe80::1%eth0",
    "http://user@a",
]


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_tracker_address_is_refused_by_name(text):
    with pytest.raises(ConfigError, match="write http://HOST:PORT"):
        Hint.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:port", "a port is a number from 1 to 65535"),
        ("a:99999", "a port is a number from 1 to 65535"),
        ("a:0", "a port is a number from 1 to 65535"),
        ("a..b", "its host is neither a name nor an address"),
        ("[::1", "its host is neither a name nor an address"),
        ("300.1.1.1:7101", "an IPv4 address is four numbers from 0 to 255"),
        ("10.1", "an IPv4 address is four numbers from 0 to 255"),
        ("a:1/b", "nothing may follow the port"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_plain_words(text, why):
    for parse in (Hint.parse, Hint.parse_peer):
        with pytest.raises(ConfigError, match=rf"address: {re.escape(repr(text))} \(.*\): {why}$"):
            parse(text)


@pytest.mark.parametrize("text", [*NO_ADDRESSES, "http://a:1"])
def test_what_is_no_peer_address_is_refused_by_name(text):
    with pytest.raises(ConfigError, match=r"write HOST:PORT, or dns://NAME:PORT"):
        Hint.parse_peer(text)


def test_hints_are_taken_once_in_the_order_given():
    trackers = ["http://a:7101", "a:7101", "[::1]:7101", "dns://b"]
    hints = read_hints(trackers, ["c", "c:9999", "dns://b", "c"])
    assert [str(hint) for hint in hints] == [
        "tracker http://a:7101/v1/tracker",
        "tracker http://[::1]:7101/v1/tracker",
        "dns://b:9999",
        "peer c:9999",
        "peer c:9999",
    ]


def test_a_hint_names_the_record_with_its_port():
    record = Heartbeat(b"s" * 32, 0, 0.0, "10.0.0.7", 8101, 9999, 7101, 1, is_training=True)
    assert Hint.parse("10.0.0.5:7101").names(record)
    assert not Hint.parse("10.0.0.5:7100").names(record)
