"""Contributions of the latest rounds as they arrived: header, and payload once it is whole.

And the owner's amendments, which are agreed with them. Knows nothing of where they came from or
whether they were agreed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from neuroswarm.values import NodeId
from neuroswarm.wire.messages import Contribution
from neuroswarm.wire.signed import Signed

MAX_ENTRIES = 16384
MAX_AMENDMENTS = 64


class PutAway(Protocol):
    """A payload that is kept elsewhere than in memory."""

    def __len__(self) -> int: ...

    def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end); blocks; CheckpointError if they are not to be had."""
        ...


@dataclass(slots=True)
class Entry:
    """One contribution."""

    signed: Signed
    header: Contribution
    payload: bytes | PutAway | None = None
    """Coded bytes of all fragments in order, checked against the header's hashes."""
    given_to: set[NodeId] = field(default_factory=set)
    """Members who have pulled it from here to its end."""


class Archive:
    """Recent contributions by id, bounded in count and bytes; the oldest rounds go first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: dict[bytes, Entry] = {}
        self._withheld: set[bytes] = set()
        self._amendments: dict[bytes, Signed] = {}

    def get(self, contribution: bytes) -> Entry | None:
        """The contribution with that id, if it is remembered."""
        return self._entries.get(contribution)

    def payload(self, contribution: bytes) -> bytes | PutAway | None:
        """Its payload, if it is held whole and may be given out."""
        entry = self._entries.get(contribution)
        return None if entry is None or contribution in self._withheld else entry.payload

    def amendment(self, amendment: bytes) -> Signed | None:
        """The amendment with that id, if it is remembered."""
        return self._amendments.get(amendment)

    def amendments(self) -> tuple[Signed, ...]:
        """All remembered amendments."""
        return tuple(self._amendments.values())

    def amendments_among(self, ids: Iterable[bytes]) -> list[Signed]:
        """Those of the ids that are amendments."""
        return [self._amendments[id_] for id_ in ids if id_ in self._amendments]

    def add_amendment(self, signed: Signed) -> None:
        """Remember a verified amendment; the one that came first makes room."""
        self._amendments.setdefault(signed.id, signed)
        if len(self._amendments) > MAX_AMENDMENTS:
            del self._amendments[next(iter(self._amendments))]

    def statement(self, id_: bytes) -> Signed | None:
        """The contribution's header or the amendment with that id, if it is remembered."""
        entry = self._entries.get(id_)
        return self._amendments.get(id_) if entry is None else entry.signed

    def is_whole(self, id_: bytes) -> bool:
        """Whether nothing is missing here to apply it: an amendment has no payload."""
        return id_ in self._amendments or self.payload(id_) is not None

    def withhold(self, contribution: bytes) -> None:
        """Give its payload to nobody before `reveal`: others could still answer it."""
        self._withheld.add(contribution)

    def reveal(self) -> None:
        """Give out what was withheld."""
        self._withheld.clear()

    def add_header(self, signed: Signed, header: Contribution) -> Entry:
        """Remember a verified header; returns its entry."""
        entry = self._entries.get(signed.id)
        if entry is None:
            if len(self._entries) >= MAX_ENTRIES:
                self._drop(min(self._entries, key=lambda c: self._entries[c].header.round))
            entry = self._entries[signed.id] = Entry(signed, header)
        return entry

    def add_payload(self, contribution: bytes, payload: bytes) -> None:
        """Keep the checked payload of a known header; older rounds' payloads make room."""
        entry = self._entries[contribution]
        if entry.payload is None:
            entry.payload = payload
            self._bytes += len(payload)
        while self._bytes > self._max_bytes:
            holders = [c for c, e in self._entries.items() if e.payload is not None]
            oldest = min(holders, key=lambda c: self._entries[c].header.round)
            if oldest == contribution:
                return  # a single round may exceed the bound: it is needed to commit
            self._drop(oldest)

    def in_memory_before(self, round_: int) -> dict[bytes, bytes]:
        """Payloads in memory of rounds before `round_`, by contribution."""
        return {
            contribution: entry.payload
            for contribution, entry in self._entries.items()
            if entry.header.round < round_ and isinstance(entry.payload, bytes)
        }

    def replace_payload(self, contribution: bytes, payload: bytes | PutAway | None) -> None:
        """Keep a payload elsewhere from now on, or here again, or give it up; the header stays."""
        entry = self._entries.get(contribution)
        if entry is not None:
            self._bytes += len(payload or b"") - len(entry.payload or b"")
            entry.payload = payload

    def forget_before(self, round_: int) -> None:
        """Drop contributions of rounds before `round_`."""
        for contribution in [c for c, e in self._entries.items() if e.header.round < round_]:
            self._drop(contribution)

    def _drop(self, contribution: bytes) -> None:
        entry = self._entries.pop(contribution)
        self._withheld.discard(contribution)
        self._bytes -= len(entry.payload or b"")
