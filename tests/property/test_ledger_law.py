"""The law of the books over random histories of training, publishing, agreeing and moving.

sum of inner progress = sum of own agreed c + (theta - x) + e
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.codecs.registry import Codec, Int4, TopK
from neuroswarm.codecs.sparse import Layout
from neuroswarm.diloco import applied
from neuroswarm.diloco.applied import Applied
from neuroswarm.diloco.ledger import Ledger
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.values import NodeId

SIZES = (5, 18)
BLOCK = 4
CODECS: tuple[Codec, ...] = (Int4(BLOCK), TopK(Layout(16, 3)), Int4(8))
MOMENTA = (0.0, 0.5, 0.95)
ME, OTHER = NodeId(b"m" * 20), NodeId(b"o" * 20)


def random_parts(source: torch.Generator, scale: float) -> list[torch.Tensor]:
    return [scale * torch.randn(size, generator=source) for size in SIZES]


@dataclass
class History:
    """One peer, what it really did, and every outer state that it could go back to."""

    source: torch.Generator
    ledger: Ledger = field(default_factory=lambda: Ledger(SIZES, Int4(BLOCK)))
    published: dict[bytes, Publication] = field(default_factory=dict)
    final: dict[bytes, bool] = field(default_factory=dict)
    """Verdicts on publications that the ledger has let go."""
    judged: set[bytes] = field(default_factory=set)
    """Publications on which a state that looks back on them has said its verdict."""

    def __post_init__(self) -> None:
        named = [(f"part{k}", part) for k, part in enumerate(random_parts(self.source, 1.0))]
        self.outer = genesis(Rules(codec_block=BLOCK), bytes(32), named)
        self.past = [self.outer]
        self.local = [part.clone() for part in self.outer.params]
        self.progress = [torch.zeros(size) for size in SIZES]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for k, gradient in enumerate(random_parts(self.source, 0.1)):
                self.local[k] -= gradient
                self.progress[k] += gradient

    def publish(self) -> bytes:
        deltas, payloads = self.ledger.prepare(self.outer.params, self.local)
        name = len(self.published).to_bytes(32, "big")
        self.published[name] = Publication(name, self.outer.round, deltas, payloads)
        self.note_verdicts()
        self.ledger.remember(self.published[name])
        return name

    def note_verdicts(self) -> None:
        """Before the ledger may forget: what it believes now of all that it remembers."""
        for publication in self.ledger.publications:
            self.final[publication.id] = self.ledger.is_agreed(publication.id)

    def go(self, base: OuterState, table: Applied, rounds: int) -> None:
        steps = random_parts(self.source, 0.3)
        fragments = tuple(
            replace(f, params=f.params + step)
            for f, step in zip(base.fragments, steps, strict=True)
        )
        new = OuterState(base.round + rounds, fragments, table, base.rules, base.architecture)
        self.note_verdicts()
        before = self.ledger.publications
        shift = self.ledger.move(self.outer, new, ME)
        self.note_verdicts()
        for publication in before:
            if publication.round >= new.round - applied.WINDOW_ROUNDS:
                self.judged |= {publication.id} if publication.round < new.round else set()
            elif publication.id not in self.judged:
                self.final[publication.id] = True  # it may be agreed, and must not count twice
        for part, change in zip(self.local, shift, strict=True):
            part += change
        self.outer = new
        self.past.append(new)

    def check(self) -> None:
        for k, progress in enumerate(self.progress):
            total = (self.outer.params[k] - self.local[k]) + self.ledger.residual[k]
            for name, publication in self.published.items():
                if self.final.get(name, False):
                    total = total + publication.payloads[k].decode()
            torch.testing.assert_close(total, progress, rtol=1e-4, atol=1e-4)


def agreed_in(history: History, base: OuterState, names: list[bytes], rounds: int) -> Applied:
    table = base.applied
    for name in names:
        table = applied.add(table, history.published[name].round, [(ME, name)])
    table = applied.add(table, base.round, [(OTHER, bytes(32))])
    return applied.prune(table, base.round + rounds)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 4)),
        st.tuples(st.just("round"), st.booleans(), st.booleans(), st.integers(0, 3)),
        st.tuples(st.just("late"), st.booleans(), st.integers(2, 20)),
        st.tuples(st.just("lineage"), st.integers(0, 3), st.integers(0, 15)),
        st.tuples(st.just("reload")),
        st.tuples(st.just("other rules"), st.sampled_from(CODECS), st.sampled_from(MOMENTA)),
    ),
    min_size=1,
    max_size=40,
)


@given(seed=st.integers(0, 2**31), events=EVENTS)
@settings(max_examples=150, deadline=None)
def test_no_progress_is_lost_or_counted_twice(seed: int, events: list[tuple]):
    history = History(torch.Generator().manual_seed(seed))
    for event in events:
        if event[0] == "train":
            history.train(event[1])
        elif event[0] == "round":
            _, publishes, is_agreed, more = event
            names = [history.publish()] if publishes else []
            history.train(more)  # while the round is being agreed
            outer = history.outer
            history.go(outer, agreed_in(history, outer, names if is_agreed else [], 1), 1)
        elif event[0] == "late":
            _, is_agreed, rounds = event
            names = [history.publish()] if is_agreed else []
            outer = history.outer
            history.go(outer, agreed_in(history, outer, names, rounds), rounds)
        elif event[0] == "lineage":
            # Back to an earlier state, on which another choice of my publications was agreed.
            base = history.past[max(0, len(history.past) - 1 - event[1])]
            recent = [p.id for p in history.ledger.publications if p.round >= base.round - 6]
            names = [name for i, name in enumerate(recent) if event[2] >> i & 1]
            names = [n for n in names if not applied.contains(base.applied, ME, n)]
            history.go(base, agreed_in(history, base, names, 1), 1)
        elif event[0] == "other rules":
            _, codec, momentum = event
            history.ledger.use_codec(codec, contribution_momentum=momentum)
        else:
            # Whatever coded the publications, any codec may be the swarm's now.
            tensors, listed = history.ledger.to_tensors()
            listed = json.loads(json.dumps(listed))
            history.ledger = Ledger.from_tensors(tensors, listed, CODECS[seed % len(CODECS)])
        history.check()
