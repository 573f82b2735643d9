"""A node that has to step back for a twin takes a new key and goes on as a new peer.

The old key is kept aside. Of its checkpoint the node keeps what the swarm agreed (the outer
state); inner progress that was not agreed is dropped: whoever goes on under the old key may have
the same progress in its parameters, since one was copied from the other, and no work may count
twice. So is the fate of what this node has published under the old key: if it is agreed, it is
part of the outer state; if not, it is part of the dropped progress, at most 2 H inner steps.
"""

from __future__ import annotations

import asyncio
import logging

from neuroswarm.config.sections import RunConfig
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.node.core import NodeCore

logger = logging.getLogger(__name__)


async def take_new_identity(core: NodeCore) -> None:
    """Put the key of a failed node aside, once all of it has stopped; its next start makes one.

    Raises:
        ConfigError: the key file cannot be moved.
    """
    await core.stop()
    home = core.require_parts().home
    aside = await asyncio.to_thread(NodeKey.set_aside, home.folder.identity_path)
    logger.error(
        "another node runs with this node's key %s: a state folder or card image was copied. "
        "This node goes on as a new peer with a new key; the old one is kept in %s. To be safe, "
        "give each machine a state folder of its own, and leave identity.key out of images",
        home.key.node_id,
        aside,
    )


def left_of(limits: RunConfig, core: NodeCore) -> RunConfig:
    """What is left of a run's limits after the life of a core; at least one round."""
    done = core.require_parts().reporter.statistics.rounds_committed
    left = {"rounds": None if limits.rounds is None else max(1, limits.rounds - done)}
    return limits.model_copy(update=left)
