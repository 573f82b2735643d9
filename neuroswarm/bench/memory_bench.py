"""The memory benchmark: two nodes that train as processes, watched from outside.

Knows how it is carried out; the arithmetic is in `memory_measures`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from neuroswarm.bench.join_bench import Case, Node
from neuroswarm.bench.memory_measures import Sample, check, measure
from neuroswarm.bench.promise import tell
from neuroswarm.demo.children import Children
from neuroswarm.errors import ConfigError, DemoFailed
from neuroswarm.hardware.process_limits import read_own_bytes

REPORT_VERSION = 1
NUM_NODES = 2
LOOK_S = 0.02
READ_EVENTS_S = 0.5
PATIENCE_S = 120.0
"""A round may take so many seconds, besides those of its steps and some for the parameters."""
PATIENCE_S_PER_MILLION = 6.0
TINY = 20_000
"""Parameters of the model whose nodes say what a node takes whatever its model."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is watched."""

    num_params: int
    rounds: int
    """Until both nodes have finished so many."""
    step_s: float
    """Least time of an inner step, of which 8 make a round."""
    is_judged: bool
    has_checkpoints: bool = False
    """Whether the nodes write them."""

    def with_params(self, num_params: int | None) -> Setup:
        """With so many parameters instead; None leaves them."""
        return self if num_params is None else replace(self, num_params=num_params)

    def with_checkpoints(self) -> Setup:
        """With nodes that write checkpoints, of which nothing is promised."""
        return replace(self, has_checkpoints=True, is_judged=False)


FULL = Setup(72_000_000, rounds=5, step_s=3.0, is_judged=True)
QUICK = Setup(8_000_000, rounds=4, step_s=0.5, is_judged=False)


def run_memory_bench(
    setup: Setup, environment: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Carry it out; returns the report as JSON values.

    Args:
        setup: What is watched.
        environment: Of the processes.
        say: Takes lines for people.

    Raises:
        ConfigError: this system does not tell how much memory a process takes.
        DemoFailed: a node ended, or rounds took much longer than they may.
    """
    if sys.platform != "linux":
        raise ConfigError("bench memory: only Linux tells what memory a process takes for itself")
    tiny = _watch(replace(setup, num_params=TINY, step_s=0.2), environment)
    base_bytes = max(sample.num_bytes for sample in tiny)
    say(f"a node with a tiny model takes {base_bytes / 1e6:.0f} MB")
    samples = _watch(setup, environment)
    measured = measure(samples, setup.num_params, base_bytes)
    promises = check(measured) if setup.is_judged else []
    for line in measured.lines():
        say(line)
    return {
        "version": REPORT_VERSION,
        "setup": asdict(setup),
        "measured": measured.to_json(),
        "promises": tell(promises, say),
    }


def _watch(setup: Setup, environment: Mapping[str, str]) -> list[Sample]:
    """How much memory each node took at which time, from its start to the last round."""
    case = Case(
        "memory", setup.num_params, 0.0, setup.step_s,
        has_checkpoints=setup.has_checkpoints, max_retained_states=4,
    )  # fmt: skip
    round_s = PATIENCE_S + PATIENCE_S_PER_MILLION * setup.num_params / 1e6 + 8 * setup.step_s
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neuroswarm-memory-")))
        children = stack.enter_context(Children())
        nodes = [Node(folder / f"node{k}", environment) for k in range(NUM_NODES)]
        for node in nodes:
            node.start(children, case, [nodes[0].url] if node is not nodes[0] else [])
        samples: list[Sample] = []
        finished = [0] * NUM_NODES
        until, look_at = time.monotonic() + setup.rounds * round_s, 0.0
        while min(finished) < setup.rounds:
            if time.monotonic() > until:
                raise DemoFailed(f"waited for {setup.rounds} rounds: {finished} are finished")
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + READ_EVENTS_S
                for node in nodes:
                    node.milestones()  # fails if it has ended
                finished = [len(node.rounds()) for node in nodes]
            for k, node in enumerate(nodes):
                samples.append(Sample(k, finished[k], read_own_bytes(node.process.pid)))
            time.sleep(LOOK_S)
    return samples
