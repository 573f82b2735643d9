"""What the rounds driver works with, and whom it tells what became of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from neuroswarm.node.committing import Commit, Committer
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.holdings import Holdings
from neuroswarm.node.inquiry import Inquirer
from neuroswarm.node.intake import Intake
from neuroswarm.node.replica import Replica
from neuroswarm.node.resuming import Resuming
from neuroswarm.node.thrift import Thrift
from neuroswarm.node.voice import Voice


class Observer(Protocol):
    """Who is told of what this node's rounds do."""

    def on_published(self, round_: int, contribution: bytes) -> None:
        """This node published in that round."""
        ...

    async def on_commit(self, commit: Commit) -> None:
        """The node moved to another outer state; the next round waits for this to return."""
        ...


@dataclass(frozen=True, slots=True)
class RoundParts:
    """What the driver works with."""

    intake: Intake
    crowd: Crowd
    replica: Replica
    holdings: Holdings
    committer: Committer
    inquirer: Inquirer
    voice: Voice
    resuming: Resuming
    thrift: Thrift
