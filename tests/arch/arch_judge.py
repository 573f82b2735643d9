"""What the event logs of nodes on different processors say about one another.

Pure functions of what was read; refuses to know of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroswarm.demo.events import Committed, PeerRecord


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two nodes have in common."""

    rounds: tuple[int, ...]
    """That both committed with a contribution of both in the agreed set, to the same state."""
    differing: tuple[str, ...]
    """Rounds that both left together and reached with different bits, in words."""

    @property
    def is_broken(self) -> bool:
        """Whether the bits differed after the same contributions."""
        return bool(self.differing)


def compare(native: PeerRecord, other: PeerRecord) -> Agreement:
    """Compare two nodes, round by round.

    States are held against each other where both nodes committed the same agreed set: then only
    arithmetic can tell them apart.
    """
    mine, theirs = _steps(native), _steps(other)
    ids = {native.node_id, other.node_id}
    together, differing = [], []
    for round_ in sorted(mine.keys() & theirs.keys()):
        a, b = mine[round_], theirs[round_]
        if a.contributions != b.contributions:
            continue
        if a.digest != b.digest:
            differing.append(f"round {round_}: {a.digest[:16]} and {b.digest[:16]}")
        elif None not in ids and ids <= set(a.signers):
            together.append(round_)
    return Agreement(tuple(together), tuple(differing))


def _steps(record: PeerRecord) -> dict[int, Committed]:
    """What the node computed itself, by round."""
    return {c.round: c for c in record.committed if c.contributions and not c.is_download}


def rows(records: Sequence[PeerRecord], rounds: Sequence[int]) -> list[str]:
    """A line for each round: the digest that each node holds after it, and who contributed."""
    names = {record.node_id: record.name for record in records if record.node_id}
    steps = {record.name: _steps(record) for record in records}
    lines = []
    for round_ in rounds:
        held = {name: of[round_] for name, of in steps.items() if round_ in of}
        some = next(iter(held.values()))
        signers = ", ".join(sorted(names.get(signer, signer[:8]) for signer in some.signers))
        digests = "  ".join(f"{name} {step.digest[:16]}" for name, step in held.items())
        lines.append(f"round {round_:<4d} {digests}  from {signers}")
    return lines
