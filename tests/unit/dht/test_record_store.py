"""Records kept for others: versions, times, quotas, and who gives way at a bound."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from types import FrameType
from typing import Any, TypeAlias

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.dht import record_store
from neuroswarm.dht.record_store import MAX_PER_KEY, MAX_TTL_S, SKEW_S, RecordStore
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.wire.dht_messages import Verdict, tag_of
from neuroswarm.wire.dht_records import DhtRecord, Scope, fragment_key, swarm_key
from neuroswarm.wire.signed import Kind, Signed, sign

SWARM, NOW = b"s" * 32, 1.7e9
RECORD = DhtRecord(SWARM, Scope.SWARM, sequence=5, expires_at=NOW + 100)
KEY = swarm_key(SWARM)
TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


@lru_cache(maxsize=512)
def publisher(number: int) -> NodeKey:
    return NodeKey(Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big")))


def put(
    store: RecordStore, number: int, *, group: str = "", now: float = NOW, **changes: object
) -> Verdict:
    record = replace(RECORD, **changes)  # type: ignore[arg-type]
    signed = sign(Kind.DHT_RECORD, record.encode(), publisher(number))
    return store.put(record, signed, group or f"10.0.0.{number}", now)


def signers(found: list[Signed]) -> list[bytes]:
    return [signed.signer for signed in found]


def test_several_publishers_have_records_under_one_key_in_the_order_of_their_ids():
    store = RecordStore()
    assert {put(store, number) for number in range(5)} == {Verdict.STORED}
    found = store.page(KEY, b"", (), NOW)
    assert signers(found) == sorted(publisher(number).node_id for number in range(5))
    assert store.count(KEY, NOW) == len(store) == 5
    after = found[1].signer
    assert store.page(KEY, after, [tag_of(found[3].signature)], NOW) == [found[2], found[4]]


def test_newest_record_of_a_publisher_replaces_the_others_and_stays():
    store = RecordStore()
    put(store, 1)
    assert put(store, 1) is Verdict.STORED, "the same again"
    assert put(store, 1, sequence=4) is Verdict.NOT_NEWER
    assert put(store, 1, sequence=5, round=1) is Verdict.NOT_NEWER
    assert put(store, 1, sequence=6) is Verdict.STORED
    assert len(store) == 1
    assert store.num_refused == {"not_newer": 2}


@pytest.mark.parametrize(
    ("ends_in_s", "verdict"),
    [
        (0.0, Verdict.BAD_TIME),
        (-1.0, Verdict.BAD_TIME),
        (0.1, Verdict.STORED),
        (MAX_TTL_S + SKEW_S, Verdict.STORED),
        (MAX_TTL_S + SKEW_S + 0.1, Verdict.BAD_TIME),
    ],
)
def test_record_is_kept_only_if_its_end_is_near_ahead(ends_in_s: float, verdict: Verdict):
    assert put(RecordStore(), 1, expires_at=NOW + ends_in_s) is verdict


def test_record_that_is_over_is_not_shown_and_then_dropped():
    store = RecordStore()
    put(store, 1)
    put(store, 2, expires_at=NOW + 50)
    assert signers(store.page(KEY, b"", (), NOW + 60)) == [publisher(1).node_id]
    assert store.count(KEY, NOW + 60) == 1
    assert store.expire(NOW + 60) == 1
    assert store.expire(NOW + 100) == 1
    assert len(store) == store.num_keys == 0


def test_publisher_has_a_quota_over_all_keys():
    store = RecordStore()
    verdicts = [
        put(store, 1, scope=Scope.FRAGMENT, fragment=n)
        for n in range(record_store.MAX_PER_PUBLISHER + 1)
    ]
    assert verdicts[-1] is Verdict.NO_ROOM
    assert set(verdicts[:-1]) == {Verdict.STORED}
    assert put(store, 1, scope=Scope.FRAGMENT, fragment=0, sequence=6) is Verdict.STORED
    assert put(store, 2, scope=Scope.FRAGMENT, fragment=0) is Verdict.STORED


def test_one_address_cannot_fill_a_key():
    store = RecordStore()
    for number in range(MAX_PER_KEY):
        put(store, number, group="10.6.6.6", expires_at=NOW + 100 + number)
    assert put(store, 201, group="10.6.6.6") is Verdict.NO_ROOM
    for number in range(202, 206):
        assert put(store, number) is Verdict.STORED
    assert store.count(KEY, NOW) == MAX_PER_KEY
    shown = set(signers(store.page(KEY, b"", (), NOW)))
    assert {publisher(number).node_id for number in range(202, 206)} <= shown
    gone = {publisher(number).node_id for number in range(4)}
    assert not gone & shown, "those that end first"


def test_key_shared_fairly_takes_no_further_ones():
    store = RecordStore()
    for number in range(MAX_PER_KEY):
        put(store, number)
    assert put(store, 300) is Verdict.NO_ROOM
    assert put(store, 300, now=NOW + 150, expires_at=NOW + 200) is Verdict.STORED


def test_whole_store_is_bounded_and_shared_by_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record_store, "MAX_RECORDS", 10)
    store = RecordStore()
    for number in range(10):
        put(store, number, group="10.6.6.6", scope=Scope.FRAGMENT, fragment=number)
    assert put(store, 11, group="10.6.6.6") is Verdict.NO_ROOM
    assert put(store, 12) is Verdict.STORED
    assert len(store) == 10
    assert store.count(fragment_key(SWARM, 0), NOW) + store.count(KEY, NOW) >= 1


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that some work takes: the same on every machine."""
    num_lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal num_lines
        num_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return num_lines


@pytest.mark.parametrize("is_shared_fairly", [False, True], ids=["displaced", "refused"])
def test_work_for_a_record_does_not_grow_with_a_full_store(
    is_shared_fairly: bool, monkeypatch: pytest.MonkeyPatch
):
    """A full store is flooded by somebody, and the loop does nothing else meanwhile."""

    def cost_at(num_records: int) -> int:
        monkeypatch.setattr(record_store, "MAX_RECORDS", num_records)
        store, numbers = RecordStore(), range(num_records)
        for number in numbers:
            group = f"10.1.{number // 250}.{number % 250}" if is_shared_fairly else "10.6.6.6"
            taken = replace(RECORD, scope=Scope.FRAGMENT, fragment=number % 1000)
            key = number.to_bytes(32, "big")
            signed = Signed(Kind.DHT_RECORD, taken.encode(), key, key + key)
            assert store.put(taken, signed, group, NOW) is Verdict.STORED
        newcomer = sign(Kind.DHT_RECORD, RECORD.encode(), publisher(1))
        assert newcomer.signer
        cost = lines_run(lambda: store.put(RECORD, newcomer, "10.9.9.9", NOW))
        assert store.num_refused == ({"no_room": 1} if is_shared_fairly else {})
        assert len(store) == num_records
        return cost

    assert cost_at(4096) <= cost_at(64) + 10


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.integers(0, 2), st.integers(0, 4), st.integers(-5, 60),
            st.integers(0, 20),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_books_are_right_after_any_history(events: list[tuple[int, int, int, int, int]]):
    store, now = RecordStore(), NOW
    newest: dict[tuple[int, int], int] = {}
    for number, fragment, sequence, ends_in_s, passed_s in events:
        now += passed_s
        verdict = put(
            store, number, group=str(number % 2), now=now, scope=Scope.FRAGMENT,
            fragment=fragment, sequence=sequence, expires_at=now + ends_in_s,
        )  # fmt: skip
        name = (number, fragment)
        if verdict is Verdict.STORED:
            assert ends_in_s > 0
            newest[name] = sequence
    shown = [s for f in range(3) for s in store.page(fragment_key(SWARM, f), b"", (), now)]
    assert len(shown) == sum(store.count(fragment_key(SWARM, f), now) for f in range(3))
    store.expire(now)
    assert len(store) == len(shown)
    store.expire(now + 100)
    assert len(store) == store.num_keys == 0
    assert not store._publishers
    assert not store._shares
