"""No progress is counted twice over crashes, restarts, jumps and lineages; little is ever lost.

Every inner step moves one coordinate of its own by one, and everything else is whole numbers too,
so that sum of own agreed c + (theta - x) + e says exactly how often each step counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from neuroswarm.codecs.registry import Int4
from neuroswarm.diloco import applied
from neuroswarm.diloco.ledger import Ledger
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.values import NodeId

ME = NodeId(b"m" * 20)
NUM_STEPS = 128
BLOCK = 2
SCALE = 7.0
"""A step's size: pairs of it and zeros are coded exactly by the codec."""


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds."""

    outer: OuterState
    local: Tensor
    ledger: tuple[dict[str, Tensor], str]
    num_steps: int


@dataclass
class Peer:
    """One peer over all its lives, and the swarm's outer states."""

    num_steps: int = 0
    """Inner steps taken in all lives."""
    said: dict[bytes, Publication] = field(default_factory=dict)
    """By the digest of the base: what was published there, in any life."""
    path: list[OuterState] = field(default_factory=list)
    """Outer states of the present lineage."""
    num_crashes: int = 0
    kept: int = 0
    """Inner steps in the last snapshot before the first crash."""

    def __post_init__(self) -> None:
        named = [("part", torch.zeros(NUM_STEPS))]
        self.outer = genesis(Rules(codec_block=BLOCK), bytes(32), named)
        self.local = self.outer.params[0].clone()
        self.ledger = Ledger([NUM_STEPS], Int4(BLOCK))
        self.path = [self.outer]
        self.saved = self.snapshot()

    def train(self, count: int) -> None:
        for _ in range(count):
            if self.num_steps < NUM_STEPS:
                self.local[self.num_steps] -= SCALE
                self.num_steps += 1

    def publish(self) -> None:
        if self.outer.digest in self.said:
            return
        deltas, payloads = self.ledger.prepare(self.outer.params, [self.local])
        name = len(self.said).to_bytes(32, "big")
        publication = Publication(name, self.outer.round, deltas, payloads)
        self.said[self.outer.digest] = publication
        self.ledger.remember(publication)

    def after(self, base: OuterState, *, is_agreed: bool) -> OuterState:
        """The state after a round on `base` that agreed what this peer published, or did not."""
        mine = self.said.get(base.digest)
        is_agreed = is_agreed and mine is not None
        agreed = [(ME, mine.id)] if is_agreed and mine else []
        params = base.params[0].clone()
        if is_agreed and mine:
            params -= mine.payloads[0].decode()
        params[-1] += 1  # what the others brought
        (fragment,) = base.fragments
        table = applied.add(base.applied, base.round, agreed)
        return OuterState(
            base.round + 1, (replace(fragment, params=params),), table, base.rules,
            base.architecture,
        )  # fmt: skip

    def go(self, new: OuterState) -> None:
        (shift,) = self.ledger.move(self.outer, new, ME)
        self.local = self.local + shift
        self.outer = new

    def snapshot(self) -> Snapshot:
        tensors, listed = self.ledger.to_tensors()
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        return Snapshot(
            self.outer, self.local.clone(), (copies, json.dumps(listed)), self.num_steps
        )

    def crash(self, *, replays: bool) -> None:
        """Lose everything since the last snapshot, and catch up with the swarm."""
        self.num_crashes += 1
        saved, newest = self.saved, self.path
        self.outer, self.local = saved.outer, saved.local.clone()
        listed: Any = json.loads(saved.ledger[1])
        tensors = {name: tensor.clone() for name, tensor in saved.ledger[0].items()}
        self.ledger = Ledger.from_tensors(tensors, listed, Int4(BLOCK))
        self.ledger.carry(self.outer, [self.local], ME, is_published=True)
        ahead = newest[newest.index(saved.outer) + 1 :] if saved.outer in newest else newest[-1:]
        self.resume()
        for state in ahead if replays else ahead[-1:]:
            self.go(state)
            self.resume()

    def resume(self) -> None:
        known = self.said.get(self.outer.digest)
        if known is not None:
            (shift,) = self.ledger.resume(known.id, self.outer, known.payloads, ME)
            self.local = self.local + shift

    def counts(self) -> Tensor:
        """How often each inner step counts: agreed, in the parameters, in the residual."""
        agreed = {id_ for _, _, id_ in applied.entries(self.outer.applied)}
        total = self.outer.params[0] - self.local + self.ledger.residual[0]
        for publication in self.said.values():
            if publication.id in agreed:
                total = total + publication.payloads[0].decode()
        return total / SCALE


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 4)),
        st.tuples(st.just("round"), st.booleans(), st.booleans(), st.integers(0, 2)),
        st.tuples(st.just("publish")),
        st.tuples(st.just("lineage"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("save")),
        st.tuples(st.just("crash"), st.booleans()),
    ),
    min_size=1,
    max_size=15,
)


@given(events=EVENTS)
@example(
    # After the snapshot a lineage with smaller rounds, in which its progress is agreed.
    events=[
        ("train", 1), ("round", False, False, 0), ("round", False, False, 0), ("save",),
        ("lineage", 2, False), ("publish",), ("round", False, True, 0), ("crash", False),
    ]
)  # fmt: skip
@settings(max_examples=600, deadline=None)
def test_no_inner_step_counts_twice_and_none_of_the_last_snapshot_is_lost(events: list[tuple]):
    peer = Peer()
    for event in events:
        if event[0] == "train":
            peer.train(event[1])
        elif event[0] == "publish":
            peer.publish()
        elif event[0] == "round":
            _, publishes, is_agreed, more = event
            if publishes:
                peer.publish()
            peer.train(more)
            peer.go(peer.after(peer.outer, is_agreed=is_agreed))
            peer.path.append(peer.outer)
        elif event[0] == "lineage":
            _, back, is_agreed = event
            kept = peer.path[: max(1, len(peer.path) - back)]
            peer.path = [*kept, peer.after(kept[-1], is_agreed=is_agreed)]
            peer.go(peer.path[-1])
        elif event[0] == "save":
            peer.saved = peer.snapshot()
        else:
            peer.crash(replays=event[1])
        counts = peer.counts()
        assert bool(((counts - counts.round()).abs() < 1e-4).all()), counts
        assert set(counts.round().int().tolist()) <= {0, 1}, counts
        if peer.num_crashes == 1:
            assert bool((counts[: peer.kept] > 0.5).all()), (peer.kept, counts)
        if peer.num_crashes == 0:
            peer.kept = peer.saved.num_steps
            assert bool((counts[: peer.num_steps] > 0.5).all()), counts
