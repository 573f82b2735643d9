"""`lineage.Audience` of what a test says."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from neuroswarm.values import NodeId


@dataclass
class Heard:
    """Everyone counts, nobody was heard on a state, unless said otherwise."""

    quorum: int = 1
    counted: Callable[[NodeId], bool] = lambda _: True
    heard_on: Callable[[Collection[bytes]], frozenset[NodeId]] = lambda _: frozenset()
    most_on: frozenset[bytes] = frozenset()
    """States on which most peers stand now."""

    def is_counted(self, signer: NodeId) -> bool:
        return self.counted(signer)

    def adherents(self, digests: Collection[bytes]) -> frozenset[NodeId]:
        return self.heard_on(digests)

    def is_most(self, digests: Collection[bytes]) -> bool:
        return not self.most_on.isdisjoint(digests)
