"""A trainer, its books and its outer state, as small as can be; and what tests do to its disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import Recovered
from neuroswarm.clock import SystemClock
from neuroswarm.codecs.registry import Int4
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.ledger import Ledger
from neuroswarm.diloco.outer import AgreedContribution, advance
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.trainer import Trainer
from neuroswarm.values import NodeId

ME = NodeId(b"m" * 20)
CODEC = Int4(256)
CONFIG = TrainingConfig(lr=1e-2, warmup_steps=3, batch_size=2, context=8, dim=16, num_heads=2)


class SmallNode:
    """A trainer, its books and its outer state: what a node is between two steps."""

    def __init__(self, seed: int = 0) -> None:
        shape = TransformerConfig(dim=16, num_layers=1, num_heads=2, context=8)
        text = FlatTokens(torch.arange(4000) % 97)
        batches = WindowSampler(text, context=8, batch_size=2, seed=0)
        self.trainer = Trainer(Transformer(shape, seed=seed), batches, CONFIG, clock=SystemClock())
        fragments = self.trainer.fragments
        named = zip(fragments.names, self.trainer.local(), strict=True)
        self.outer = genesis(Rules(), fragments.architecture, named)
        self.ledger = Ledger(fragments.sizes, CODEC)

    def round(self, num_steps: int = 3, *, is_agreed: bool = True) -> None:
        """Take steps, publish, and move to the next outer state."""
        for _ in range(num_steps):
            self.trainer.step()
        progress = self.trainer.progress
        self.trainer.mark_published(self.trainer.progress)
        deltas, payloads = self.ledger.prepare(self.outer.params, self.trainer.local())
        name = self.outer.round.to_bytes(32, "little")
        self.ledger.remember(Publication(name, self.outer.round, deltas, payloads))
        own = AgreedContribution(ME, name, progress.steps, progress.tokens, payloads)
        new = advance(self.outer, [own] if is_agreed else []).state
        self.trainer.shift(self.ledger.move(self.outer, new, ME))
        self.outer = new

    def snapshot(self) -> Snapshot:
        return Snapshot(
            outer=self.outer,
            local=self.trainer.local(),
            ledger=self.ledger.to_tensors(),
            inner=self.trainer.inner_state(),
            meta={"seconds": 1.5, "name": "alice"},
        )

    def move(self, outer: OuterState) -> None:
        """Go to another outer state, as a node does."""
        self.trainer.shift(self.ledger.move(self.outer, outer, ME))
        self.outer = outer

    def restore(self, snapshot: Snapshot) -> None:
        self.outer = snapshot.outer
        self.ledger = Ledger.from_tensors(*snapshot.ledger, CODEC)
        self.trainer.load(snapshot.local)
        self.trainer.load_inner_state(*snapshot.inner)


def flat(snapshot: Snapshot) -> dict[str, Tensor]:
    named = {f"local.{i}": tensor for i, tensor in enumerate(snapshot.local)}
    for fragment in snapshot.outer.fragments:
        named[f"params.{fragment.name}"] = fragment.params
        named[f"momentum.{fragment.name}"] = fragment.momentum
    return named | dict(snapshot.ledger[0]) | dict(snapshot.inner[0])


def same(a: Snapshot, b: Snapshot) -> bool:
    """Whether two snapshots are equal bit for bit."""
    tensors_a, tensors_b = flat(a), flat(b)
    return (
        a.outer.digest == b.outer.digest
        and (a.ledger[1], a.inner[1], a.meta) == (b.ledger[1], b.inner[1], b.meta)
        and tensors_a.keys() == tensors_b.keys()
        and all(torch.equal(tensors_a[name], tensors_b[name]) for name in tensors_a)
    )


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: what a full disk does to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def flip(path: Path, at: float) -> None:
    """Turn one bit of a file; `at` from 0 to 1."""
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Take the last byte of a file away."""
    path.write_bytes(path.read_bytes()[:-1])


def newest(found: Recovered | None) -> Snapshot:
    """The checkpoint that a restart goes on from, if it needs nothing else."""
    assert found is not None
    assert found.snapshot is not None
    assert found.snapshot.outer.digest == found.outer.digest
    return found.snapshot
