"""What a node counts of its own rounds, and the answers that callers and dashboards get.

Refuses to do I/O; reading it is possible at any time, also while shutting down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from neuroswarm.node.committing import Commit
from neuroswarm.values import NodeId, short

MAX_RECENT = 32
"""Rejections that `/status` lists."""


@dataclass(slots=True)
class Statistics:
    """Counters of one life of a node."""

    me: NodeId
    rounds_committed: int = 0
    """Moves to a next outer state by an agreed set, since the start."""
    contributions_published: int = 0
    contributions_agreed: int = 0
    """Own contributions that were part of an agreed set."""
    foreign_contributions_used: int = 0
    """Contributions of other peers that an outer step here used."""
    contributions_rejected: int = 0
    """Contributions of agreed sets that the screening left out."""
    repairs: int = 0
    """Changes of lineage: this node's digest differed from the swarm's."""
    downloads: int = 0
    """Outer states downloaded after the first."""
    durable_round: int | None = None
    """Round of the newest outer state that is on this node's disk."""
    held_out_loss: float | None = None
    """Of the newest evaluated outer state on this node's part of the text, nats per token."""
    last_method: str = "none"
    """Rule that the last outer step applied."""
    last_set_size: int = 0
    rejections: dict[str, str] = field(default_factory=dict)
    """Reasons of the last round's rejections, by contribution."""
    rejected_by_reason: Counter[str] = field(default_factory=Counter)
    recent_rejections: list[dict[str, object]] = field(default_factory=list)
    """The latest rejections: round, contribution, signer, reason."""

    def note(self, commit: Commit) -> None:
        """Count one move to another outer state."""
        self.repairs += commit.is_repair
        outcome = commit.outcome
        if outcome is None:
            self.downloads += 1
            return
        used = set(outcome.used)
        self.rounds_committed += 1
        self.contributions_agreed += self.me in commit.signers
        self.foreign_contributions_used += count_foreign(commit, self.me)
        self.contributions_rejected += len(outcome.rejected)
        self.rejections = {short(c): reason for c, reason in outcome.rejected.items()}
        self.rejected_by_reason.update(r.replace(" ", "_") for r in outcome.rejected.values())
        signer_of = dict(zip(commit.contributions, commit.signers, strict=True))
        self.recent_rejections += [
            {
                "round": commit.state.round - 1,
                "contribution": short(contribution),
                "signer": str(signer_of[contribution]),
                "reason": reason,
            }
            for contribution, reason in outcome.rejected.items()
        ]
        del self.recent_rejections[:-MAX_RECENT]
        self.last_method = outcome.method
        self.last_set_size = len(used)

    def as_dict(self) -> Mapping[str, object]:
        """All counters by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "me"}


def count_foreign(commit: Commit, me: NodeId) -> int:
    """Contributions of others that the outer step used."""
    outcome = commit.outcome
    if outcome is None:
        return 0
    used = set(outcome.used)
    pairs = zip(commit.contributions, commit.signers, strict=True)
    return sum(c in used and signer != me for c, signer in pairs)
