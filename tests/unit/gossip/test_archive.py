from __future__ import annotations

import pytest

from neuroswarm.gossip import archive as archive_module
from neuroswarm.gossip.archive import Archive
from neuroswarm.rounds.statements import decode
from neuroswarm.testing.speaker import Speaker
from neuroswarm.wire.messages import Contribution

ANNA = Speaker("anna")


def add(archive: Archive, round_: int, payload: bytes | None, name: str = "anna") -> bytes:
    signed = Speaker(name, round_=round_).contribution(payload or b"never held")
    header = decode(signed)
    assert isinstance(header, Contribution)
    archive.add_header(signed, header)
    if payload is not None:
        archive.add_payload(signed.id, payload)
    return signed.id


def test_a_contribution_is_known_by_its_header_and_held_by_its_payload():
    archive = Archive(1000)
    held, heard = add(archive, 0, b"payload"), add(archive, 1, None)
    assert archive.payload(held) == b"payload"
    assert archive.payload(heard) is None
    entry = archive.get(heard)
    assert entry is not None
    assert entry.signed.id == heard
    assert archive.get(b"?" * 32) is None
    assert archive.payload(b"?" * 32) is None


def test_a_header_that_comes_again_keeps_the_payload():
    archive = Archive(1000)
    held = add(archive, 0, b"payload")
    entry = archive.get(held)
    assert entry is not None
    assert archive.add_header(entry.signed, entry.header) is entry
    archive.add_payload(held, b"another")
    assert archive.payload(held) == b"payload"


def test_payloads_of_older_rounds_make_room():
    archive = Archive(25)
    ids = [add(archive, round_, bytes(10)) for round_ in range(3)]
    assert [archive.payload(c) is not None for c in ids] == [False, True, True]
    assert archive.get(ids[0]) is None


def test_one_round_may_exceed_the_bound_because_it_is_needed_to_commit():
    archive = Archive(25)
    ids = [add(archive, 7, bytes(10), name) for name in "abcd"]
    assert archive.payload(ids[-1]) is not None
    big = add(archive, 8, bytes(100))
    assert archive.payload(big) == bytes(100)
    assert sum(archive.payload(c) is not None for c in ids) == 0


def test_forgetting_gives_the_room_back():
    archive = Archive(25)
    old = add(archive, 1, bytes(20))
    archive.forget_before(2)
    assert archive.get(old) is None
    new = [add(archive, 2, bytes(10), name) for name in "ab"]
    assert all(archive.payload(c) is not None for c in new)


def test_headers_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive_module, "MAX_ENTRIES", 3)
    archive = Archive(1000)
    ids = [add(archive, round_, None) for round_ in (5, 3, 4, 6)]
    assert [archive.get(c) is not None for c in ids] == [True, False, True, True]


def test_a_withheld_payload_is_given_to_nobody_before_it_is_revealed():
    archive = Archive(1000)
    own, other = add(archive, 0, b"own"), add(archive, 0, b"other", "bert")
    archive.withhold(own)
    assert archive.payload(own) is None
    assert archive.payload(other) == b"other"
    archive.reveal()
    assert archive.payload(own) == b"own"


class Elsewhere:
    """A payload that is not in memory."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __len__(self) -> int:
        return len(self._payload)

    def read(self, start: int, end: int) -> bytes:
        return self._payload[start:end]


def test_payloads_of_finished_rounds_may_be_kept_elsewhere():
    archive = Archive(1000)
    old, new = add(archive, 0, b"old payload"), add(archive, 1, b"new payload", "ben")
    assert archive.in_memory_before(1) == {old: b"old payload"}
    archive.replace_payload(old, Elsewhere(b"old payload"))
    archive.replace_payload(b"?" * 32, Elsewhere(b"of nobody"))
    assert archive.in_memory_before(2) == {new: b"new payload"}
    payload = archive.payload(old)
    assert payload is not None
    assert not isinstance(payload, bytes)
    assert payload.read(4, 8) == b"payl"
    assert archive.is_whole(old)


def test_a_payload_that_is_given_up_makes_room():
    archive = Archive(30)
    old = add(archive, 0, bytes(20))
    archive.replace_payload(old, None)
    assert not archive.is_whole(old)
    assert archive.get(old) is not None, "the header stays"
    other = add(archive, 1, bytes(20), "ben")
    assert archive.get(old) is not None
    assert archive.is_whole(other)
