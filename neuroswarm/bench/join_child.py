"""One node of the join benchmark: `python -m neuroswarm.bench.join_child SPEC`, SPEC being JSON.

Writes what happens to it, with wall-clock times, as JSON lines. Knows nothing of the other nodes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from neuroswarm.bench.join_link import LimitedCarriers
from neuroswarm.bench.join_model import CheapModel
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.training import TrainingConfig
from neuroswarm.diloco.known_answer import verify_arithmetic
from neuroswarm.hardware.process_limits import read_peak_bytes
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.carriers import Carriers, MakeCarriers, NetworkCarriers
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.workload import Workload
from neuroswarm.testing.tiny_workload import tiny_text
from neuroswarm.testing.waiting import wait_until
from neuroswarm.training.optimizer import InnerOptimizer

LOOK_S = 0.05
REST_S = 0.05
WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Spec:
    """What a node of the benchmark is told."""

    folder: str
    """For its state folder `state` and its `milestones.jsonl`."""
    config: Mapping[str, Any]
    num_params: int
    step_s: float
    """Least time of an inner step, seconds."""
    download_mbit: float | None
    """Its link; None: as fast as it gets."""
    waits_for: str | None = None
    """A file without which it does not start: by then its libraries are loaded."""

    def encode(self) -> str:
        """As the argument of the process."""
        return json.dumps(asdict(self))


class Milestones:
    """JSON lines of what happened when."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = SystemClock()

    def note(self, what: str, **more: object) -> None:
        """Add a line."""
        line = json.dumps({"what": what, "time": self._clock.wall(), **more})
        with self._path.open("a", encoding="ascii") as file:
            file.write(line + "\n")


def main(arguments: list[str]) -> None:
    """Run the node until it is killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    spec = Spec(**json.loads(arguments[0]))
    torch.set_num_threads(1)
    asyncio.run(_run(spec))


async def _run(spec: Spec) -> None:
    core = NodeCore(
        SwarmNodeConfig(**spec.config),
        SwarmToken(bytes(32)),
        Workload(CheapModel(spec.num_params), tiny_text()),
        Surroundings(make_carriers=_choose_carriers(spec)),
    )
    await asyncio.to_thread(_load_libraries)
    milestones = Milestones(Path(spec.folder) / "milestones.jsonl")
    if spec.waits_for is not None:
        await asyncio.to_thread(wait_until, Path(spec.waits_for).exists, within_s=WAIT_S)
    milestones.note("started")
    await asyncio.gather(_live(core, spec), _watch(core, milestones))


def _load_libraries() -> None:
    """What takes seconds the first time in a process and is not what is measured."""
    verify_arithmetic()
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = InnerOptimizer([("weight", weight)], TrainingConfig(), torch.nn.Module())
    weight.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.update(1e-3)


def _choose_carriers(spec: Spec) -> MakeCarriers:
    mbit = spec.download_mbit
    if mbit is None:
        return NetworkCarriers

    def make(*arguments: Any) -> Carriers:
        return LimitedCarriers(NetworkCarriers(*arguments), mbit * 1e6 / 8, SystemClock())

    return make


async def _live(core: NodeCore, spec: Spec) -> None:
    await core.start()
    parts = core.require_parts()
    plenty = 2 * core.config.diloco.inner_steps

    def step() -> None:
        if parts.trainer.progress.steps < plenty:
            parts.trainer.step()
            time.sleep(spec.step_s)
        else:
            time.sleep(REST_S)

    core.begin_training()
    parts.compute.start_training(step)
    await core.wait_closed()


async def _watch(core: NodeCore, milestones: Milestones) -> None:
    """Note peers, progress of the download, and the first state, as they come."""
    said: object = None
    knows_peers = False
    while True:
        parts = core.parts
        if parts is not None:
            if not knows_peers and any(p.heartbeat.digest for p in parts.rounds.crowd.live()):
                knows_peers = True
                milestones.note("peers")
            progress = parts.rounds.downloader.progress()
            if progress is not None and progress["percent"] != said:
                said = progress["percent"]
                milestones.note("progress", **progress)
            if parts.replica.has_state:
                break
        await asyncio.sleep(LOOK_S)
    milestones.note(
        "state",
        round=parts.replica.state.round,
        node_id=parts.home.key.node_id.hex(),
        bytes_fetched=parts.rounds.downloader.bytes_fetched,
        state_bytes=8 * parts.replica.state.num_params,
    )
    while True:
        await asyncio.sleep(1.0)
        milestones.note("memory", peak_mb=(read_peak_bytes() or 0) // 2**20)


if __name__ == "__main__":
    main(sys.argv[1:])
