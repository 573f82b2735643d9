"""One node of a soak run: a whole node on real sockets, over a network that obeys orders.

Started as `python soak_node.py --task FILE`. Orders come in a file that the parent replaces;
what struck, and how late the event loop runs, goes into another one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from soak_links import BadCarriers, Links, Orders

from neuroswarm.cli.logs import configure_logging
from neuroswarm.cli.signals import run_service
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.corpus.loading import load_corpus
from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.share import Share
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import Surroundings
from neuroswarm.node.node import SwarmNode
from neuroswarm.node.workload import Workload
from neuroswarm.values import Endpoint

LOOK_S = 0.1
REPORT_EVERY = 10
"""Looks between two reports."""


class Paced:
    """Training batches, none sooner than `step_s` after the one before: a slow disk."""

    def __init__(self, batches: WindowSampler, step_s: float) -> None:
        self._batches = batches
        self._step_s = step_s
        self._next_at = 0.0
        self._never = threading.Event()

    def train(self, index: int) -> Batch:
        """The next batch, when it is time."""
        left_s = self._next_at - time.monotonic()
        if left_s > 0:
            self._never.wait(left_s)
        self._next_at = time.monotonic() + self._step_s
        return self._batches.train(index)

    def held_out(self, index: int, num_batches: int) -> Batch:
        """At once."""
        return self._batches.held_out(index, num_batches)

    def take_share(self, share: Share) -> None:
        """As the sampler does."""
        self._batches.take_share(share)

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        """At once."""
        return self._batches.held_out_of(share, index, num_batches)


class Desk:
    """Takes orders from a file and reports into another one, on the node's event loop."""

    def __init__(self, folder: Path, links: Links, node: SwarmNode, life: int) -> None:
        self._orders, self._report = folder / "orders.json", folder / "report.json"
        self._links = links
        self._node = node
        self._life = life
        self._read_at_ns = 0
        self._looks = 0
        self._lags: list[float] = []
        self._num_sources = 0

    def take_orders(self) -> None:
        """Read them if they are new."""
        changed_ns = self._orders.stat().st_mtime_ns
        if changed_ns != self._read_at_ns:
            self._read_at_ns = changed_ns
            self._links.orders = Orders.parse(json.loads(self._orders.read_text()))

    def open(self) -> None:
        """Look and report from now on."""
        self._look(asyncio.get_running_loop().time())

    def _look(self, expected_at: float) -> None:
        loop = asyncio.get_running_loop()
        self._lags.append(loop.time() - expected_at)
        self.take_orders()
        self._looks += 1
        has_asked = len(self._links.state_sources) > self._num_sources
        if has_asked or self._looks % REPORT_EVERY == 1:
            self._num_sources = len(self._links.state_sources)
            self._write()
            self._lags.clear()
        loop.call_later(LOOK_S, self._look, loop.time() + LOOK_S)

    def _write(self) -> None:
        core = self._node.core
        values = {
            "life": self._life,
            "time": time.time(),
            "state": core.state.name,
            "is_training": core.is_training,
            "lag_mean_s": sum(self._lags) / len(self._lags),
            "lag_max_s": max(self._lags),
            "faults": dict(self._links.counts),
            "state_sources": self._links.state_sources,
        }
        new = self._report.with_suffix(".new")
        new.write_text(json.dumps(values))
        new.replace(self._report)


def make_node(task: Mapping[str, Any], links: Links) -> SwarmNode:
    """The node that the task describes."""
    config = SwarmNodeConfig(**task["settings"])
    training = config.training
    sampler = load_corpus(config.data.path, max_bytes=config.data.max_bytes).sampler(
        context=training.context,
        batch_size=training.batch_size,
        seed=training.seed,
    )
    surroundings = Surroundings(
        make_carriers=lambda key, tokens, cfg: BadCarriers(key, tokens, cfg, links),
        hints=tuple(Endpoint(host, port) for host, port in task["hints"]),
    )
    data = Paced(sampler, task["step_s"])
    return SwarmNode(config, SwarmToken.parse(task["token"]), Workload(data=data), surroundings)


def main() -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", type=Path, required=True, help="JSON: what to be")
    path: Path = parser.parse_args().task
    configure_logging("info", "plain")
    task = json.loads(path.read_text())
    links = Links(task["seed"])
    node = make_node(task, links)
    desk = Desk(path.parent, links, node, task["life"])
    desk.take_orders()

    class Started:
        """The node, with its desk open while it starts."""

        async def __aenter__(self) -> SwarmNode:
            desk.open()
            return await node.__aenter__()

        async def __aexit__(self, *exc: Any) -> None:
            await node.__aexit__(*exc)

    async def work(running: SwarmNode) -> None:
        await running.run()

    run_service(Started, work)


if __name__ == "__main__":
    main()
