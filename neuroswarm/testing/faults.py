"""Faults of a network as a test scripts them, each counting how often it struck.

Refuses to know how messages are carried.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from neuroswarm.values import Endpoint, NodeId

DATAGRAM = "datagram"
"""The method name of datagrams."""

Place = NodeId | Endpoint
"""A node, or an endpoint of datagrams that no node was named for."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One message on its way: a request, a reply or a piece of one, or a datagram."""

    source: Place
    target: Place
    method: str
    data: bytes
    is_reply: bool = False


@dataclass(eq=False)
class Fault:
    """One scripted fault: which messages it loses or delays."""

    what: str
    is_hit: Callable[[Passage], bool] = field(repr=False)
    """Asked for every message; True where the fault strikes."""
    max_delay_s: float | None = None
    """None loses the message; otherwise it arrives up to so much later."""
    fired: int = 0
    """Messages struck so far."""


class FaultScript:
    """All faults in force; with the same seed and messages, the same ones strike.

    Chance depends on the seed, the link and how many messages went over it before, not on what
    happens elsewhere, so that a test does not change when another link carries more.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._faults: list[Fault] = []
        self._num_draws: Counter[tuple[Place, Place, str, str]] = Counter()

    def add(self, fault: Fault) -> Fault:
        """Put a fault in force."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Take a fault out of force; it keeps its count."""
        if fault in self._faults:
            self._faults.remove(fault)

    def strike(self, passage: Passage) -> float | None:
        """Seconds that the message takes, 0 without a fault; None: it is lost."""
        delay_s = 0.0
        for fault in self._faults:
            if not fault.is_hit(passage):
                continue
            fault.fired += 1
            if fault.max_delay_s is None:
                return None
            delay_s += fault.max_delay_s * self.draw(passage, fault.what)
        return delay_s

    def draw(self, passage: Passage, purpose: str) -> float:
        """A number from 0 to 1 for this message of its link."""
        link = (passage.source, passage.target, passage.method, purpose)
        self._num_draws[link] += 1
        text = f"{self._seed}/{link!r}/{self._num_draws[link]}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


def is_between(
    source: Place | None,
    target: Place | None,
    method: str | None = None,
    *,
    is_reply: bool | None = None,
) -> Callable[[Passage], bool]:
    """True for messages of that source, target, method and direction; None stands for any.

    A reply counts as a message from the one who answers.
    """

    def is_hit(passage: Passage) -> bool:
        return (
            source in (None, passage.source)
            and target in (None, passage.target)
            and method in (None, passage.method)
            and is_reply in (None, passage.is_reply)
        )

    return is_hit


def is_across(groups: Collection[Collection[Place]]) -> Callable[[Passage], bool]:
    """True for messages from one group to another; who is in no group talks to all."""
    group_of = {place: i for i, group in enumerate(groups) for place in group}

    def is_hit(passage: Passage) -> bool:
        source, target = group_of.get(passage.source), group_of.get(passage.target)
        return source is not None and target is not None and source != target

    return is_hit


def limited(is_hit: Callable[[Passage], bool], count: int) -> Callable[[Passage], bool]:
    """The first `count` of the messages for which `is_hit` holds."""
    left = count

    def is_hit_so_far(passage: Passage) -> bool:
        nonlocal left
        if left == 0 or not is_hit(passage):
            return False
        left -= 1
        return True

    return is_hit_so_far
