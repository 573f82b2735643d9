"""A peer that publishes its pseudo-gradients amplified and negated; otherwise a whole node.

`python -m neuroswarm.demo.hostile` reads its task as JSON from standard input: `token`,
`settings` (as `SwarmNodeConfig` takes them) and `factor`. Ends on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from torch import Tensor

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import Surroundings
from neuroswarm.node.node import SwarmNode
from neuroswarm.node.replica import Tamper
from neuroswarm.node.workload import Workload


def amplify(factor: float) -> Tamper:
    """Publish `factor` times the true pseudo-gradient; a negative one undoes the training."""

    def tamper(outer: Sequence[Tensor], local: Sequence[Tensor]) -> Sequence[Tensor]:
        return tuple(o - factor * (o - x) for o, x in zip(outer, local, strict=True))

    return tamper


def make_hostile_node(token: str, settings: dict[str, Any], factor: float) -> SwarmNode:
    """A node of the swarm that lies about what it learned; not started."""
    return SwarmNode(
        SwarmNodeConfig(**settings),
        SwarmToken.parse(token),
        Workload(),
        Surroundings(tamper=amplify(factor)),
    )


def main() -> None:
    """Run until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _leave)
    node = make_hostile_node(**json.load(sys.stdin))
    try:
        node.start()
        node.train()
    finally:
        node.stop()


def _leave(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


if __name__ == "__main__":
    main()
