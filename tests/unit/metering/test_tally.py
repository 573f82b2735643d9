"""What is counted by day and month, and what is kept of it."""

from __future__ import annotations

import json

import pytest

from neuroswarm.errors import SchemaMismatch
from neuroswarm.metering.tally import MAX_BYTES, Tally, decode_tally, encode_tally


def make_tally() -> Tally:
    tally = Tally()
    tally.turn("2026-11-30", "2026-11-01")
    tally.add(70, 30)
    return tally


def test_a_new_day_begins_at_nothing_and_the_month_goes_on():
    tally = make_tally()
    assert tally.turn("2026-12-01", "2026-11-01")
    assert (tally.day.total, tally.month.total) == (0, 100)
    assert not tally.turn("2026-12-01", "2026-11-01")


def test_an_earlier_day_is_a_clock_put_right_and_gives_nothing_back():
    tally = make_tally()
    assert not tally.turn("2026-11-29", "2026-10-01")
    assert (tally.day.label, tally.day.total, tally.month.total) == ("2026-11-29", 100, 100)


def test_what_is_kept_comes_back_with_the_bytes_that_nobody_saw():
    tally, at = decode_tally(encode_tally(make_tally(), at=1.7e9, unseen_bytes=0))
    assert (tally, at) == (make_tally(), 1.7e9)
    tally, _ = decode_tally(encode_tally(make_tally(), at=1.7e9, unseen_bytes=5))
    assert (tally.day.total, tally.month.total) == (105, 105)


def test_counts_stay_in_range():
    tally = make_tally()
    for _ in range(3):
        tally.add(MAX_BYTES, MAX_BYTES)
    decode_tally(encode_tally(tally, at=0.0, unseen_bytes=1))


def good() -> dict[str, object]:
    values = json.loads(encode_tally(make_tally(), at=1.0, unseen_bytes=0))
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 4000,
        json.dumps({**good(), "version": 2}).encode(),
        json.dumps({**good(), "at": -1}).encode(),
        json.dumps({**good(), "at": "now"}).encode(),
        json.dumps({**good(), "at": float("nan")}).encode(),
        json.dumps({**good(), "unseen_bytes": True}).encode(),
        json.dumps({**good(), "unseen_bytes": MAX_BYTES + 1}).encode(),
        json.dumps({**good(), "day": {"label": "x" * 17, "sent": 0, "received": 0}}).encode(),
        json.dumps({**good(), "day": {"label": "x", "sent": -1, "received": 0}}).encode(),
        json.dumps({**good(), "month": {"label": "x", "sent": 1.5, "received": 0}}).encode(),
        json.dumps({**good(), "month": None}).encode(),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_damaged_is_refused(data: bytes):
    with pytest.raises(SchemaMismatch):
        decode_tally(data)
