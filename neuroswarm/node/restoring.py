"""Takes up this node's work from what is on its disk.

Knows nothing of peers; what was said in the round in progress is `node/resuming.py`.
"""

from __future__ import annotations

import asyncio
import logging

from neuroswarm.checkpoint.said import SaidLog
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import Recovered
from neuroswarm.errors import CheckpointCorrupt, CheckpointError, PeerError
from neuroswarm.node.home import Home
from neuroswarm.node.replica import Replica
from neuroswarm.rounds.history import History
from neuroswarm.wire.messages import decode_contribution
from neuroswarm.wire.signed import Kind

logger = logging.getLogger(__name__)


async def take_up(replica: Replica, kept: Recovered, home: Home) -> None:
    """Restore the work, and stand on the newest outer state on the disk.

    Under another key only what the swarm agreed is taken up: what was not agreed may also be in
    the parameters of whoever has the former key, and must not be published a second time.

    Outer states are written before the work that goes on from them, so the work found may be
    based on an earlier one. What was published in between is entered first: agreed, it is in the
    newer state, and must not be in the local parameters as well.
    """
    outer, snapshot = kept.outer, kept.snapshot
    made_by = kept.meta.get("node_id")
    if made_by not in (None, home.key.node_id.hex()):
        logger.warning(
            "this checkpoint is of node %s: going on from its outer state; progress that was not "
            "agreed is left to that node",
            str(made_by)[:8],
        )
        await replica.adopt(outer)
        return
    if snapshot is None:
        logger.warning(
            "no whole checkpoint of this node's own work: it goes on from the outer state of "
            "round %d with a new inner optimiser",
            outer.round,
        )
        await replica.adopt(outer)
        return
    spoke_in = await asyncio.to_thread(home.said.newest_round, Kind.CONTRIBUTION)
    await replica.restore(snapshot, has_published=spoke_in > snapshot.outer.round)
    if snapshot.outer.digest != outer.digest:
        logger.info(
            "own work of round %d goes on in the newer outer state of round %d",
            snapshot.outer.round,
            outer.round,
        )
        await _enter_published(replica, snapshot, home.said)
        await replica.move(outer)


def restore_history(kept: Recovered) -> History:
    """The lineage of the outer state that was found, or an empty one if it is not known."""
    outer = kept.outer
    try:
        return History.from_json(kept.meta["history"], outer.round, outer.digest)
    except (KeyError, CheckpointCorrupt) as error:
        logger.warning("the lineage of round %d is forgotten: %s", outer.round, error)
        return History(outer.round, outer.digest)


async def _enter_published(replica: Replica, snapshot: Snapshot, said: SaidLog) -> None:
    base = snapshot.outer
    try:
        found = await asyncio.to_thread(said.recall, base.round, base.digest)
        before = found.said.get(Kind.CONTRIBUTION)
        if before is not None and before.payload:
            header = decode_contribution(before.signed.body)
            await replica.resume(before.signed.id, header, before.payload)
    except (CheckpointError, PeerError) as error:
        logger.warning("what was published in round %d is not known: %s", base.round, error)
