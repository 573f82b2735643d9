from __future__ import annotations

import pytest

from neuroswarm.membership.addresses import canonical, group_of, is_local_only, is_same_host


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("localhost", "127.0.0.1"),
        ("A.B.Example.org.", "example.org"),
        ("c.example.org", "example.org"),
        ("node-1", "(local names)"),
    ],
)
def test_a_host_belongs_to_who_has_its_neighbours_at_hand_too(host, group):
    assert group_of(host) == group


def test_equal_forms_are_one_host():
    assert canonical("::FFFF:10.0.0.7") == "10.0.0.7"
    assert is_same_host("Node.Example.", "node.example")
    assert is_same_host("localhost", "127.0.0.5")
    assert is_same_host("::1", "127.0.0.1")
    assert not is_same_host("10.0.0.7", "10.0.0.8")
    assert not is_same_host("10.0.0.7", None)


def test_loopback_and_unspecified_mean_the_machine_itself():
    assert [is_local_only(h) for h in ("127.0.0.1", "0.0.0.0", "::1", "localhost")] == [True] * 4
    assert not is_local_only("10.0.0.7")
    assert not is_local_only("node")
