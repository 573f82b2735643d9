"""Who takes part in a round and the quorums that follow from it (DESIGN 4 and 10).

Knows nothing of messages or time.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.values import NodeId


@dataclass(frozen=True, slots=True)
class Electorate:
    """The live training peers of a round, this node among them if it trains."""

    live: frozenset[NodeId]
    """Everyone whose contribution or skip, ballot and confirm count."""
    silent: frozenset[NodeId] = frozenset()
    """Those who sent no ballot in the last round: nobody waits for theirs."""
    num_recent: int = 0
    """M: identities agreed in the last 16 rounds, from the outer state."""

    @property
    def publish_quorum(self) -> int:
        """Ready peers that start the publication: floor(n/4) + 1."""
        return len(self.live) // 4 + 1

    @property
    def expected_ballots(self) -> frozenset[NodeId]:
        """Whose ballots a closed round waits for."""
        return self.live - self.silent

    @property
    def min_contributions(self) -> int:
        """Fewest contributions with which a round closes before its deadline."""
        return 2 * (self.num_recent // 4) + 1

    def is_supermajority(self, count: int) -> bool:
        """Whether `count` confirms are 2/3 of the live training peers."""
        return count > 0 and 3 * count >= 2 * len(self.live)

    def is_plausible(self, count: int) -> bool:
        """Whether `count` signers cannot all be hostile: floor(n/4) + 1."""
        return count >= len(self.live) // 4 + 1
