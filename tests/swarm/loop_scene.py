"""Training loops of one's own, in the test's threads, whose nodes meet over gRPC on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm import SwarmNode, SwarmNodeConfig, SwarmOptimizer, create_swarm_node
from neuroswarm.identity.token import SwarmToken
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

TOKEN = SwarmToken(bytes(32)).text
SETTINGS: Mapping[str, dict[str, Any]] = {
    "network": {
        "host": "127.0.0.1", "announce_host": "127.0.0.1", "grpc_port": 0, "lan": False,
    },
    "dht": {"enabled": False},
    "heartbeat": {"interval_s": 0.3, "port": 0},
    "rounds": {
        "genesis_wait_s": 0.3, "min_grace_s": 0.1, "settle_s": 0.2, "min_settle_s": 0.05,
        "patience_s": 0.3, "collect_deadline_s": 3.0, "ballot_deadline_s": 1.0,
    },
    "diloco": {"inner_steps": 5, "inner_steps_min": 1, "inner_steps_max": 8},
}  # fmt: skip
TEXT = tiny_text()


def make_node(
    folder: Path, model: nn.Module, tracker: str | None = None, **changes: Any
) -> SwarmNode:
    """A node for a loop of one's own."""
    config = SwarmNodeConfig(**SETTINGS, state_dir=folder)
    given: dict[str, Any] = {"model": model, "enable_training": True, "max_cpu_threads": 1}
    return create_swarm_node(TOKEN, 0, tracker, config, **(given | changes))


def url_of(node: SwarmNode) -> str:
    """What another gives as its tracker."""
    return f"http://127.0.0.1:{node.core.require_parts().web.endpoint.port}"


def batch(number: int) -> tuple[Tensor, Tensor]:
    """Batch `number` of the text, always the same; [4, 16] each."""
    source = torch.Generator().manual_seed(number)
    starts = torch.randint(len(TEXT) - 17, (4,), generator=source)
    windows = torch.stack([TEXT[s : s + 17] for s in starts])
    return windows[:, :-1], windows[:, 1:]


def loss_of(model: nn.Module, number: int) -> Tensor:
    """The loss on a batch."""
    inputs, targets = batch(number)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW with two groups."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices}, {"params": others, "lr": 0.02}], lr=0.01)


@dataclass(eq=False)
class Runner:
    """A loop in a thread of its own, that goes on until it is told to end."""

    node: SwarmNode
    model: nn.Module
    optimizer: SwarmOptimizer
    seed: int = 0
    ends: threading.Event = field(default_factory=threading.Event)
    goes: threading.Event = field(default_factory=threading.Event)
    """Cleared, the loop stands still, as in an evaluation."""
    error: BaseException | None = None

    def run(self) -> None:
        """Train; takes the node down at the end."""
        try:
            while not self.ends.is_set():
                assert self.goes.wait(60)
                loss = loss_of(self.model, 1000 * self.seed + self.optimizer.num_steps)
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step(loss=loss, tokens=64)
                self.optimizer.zero_grad()
        except BaseException as error:  # noqa: BLE001 - the test's thread is to see it
            self.error = error
        finally:
            self.node.stop()

    @property
    def round(self) -> int:
        """Of the outer state that its node holds."""
        return self.node.current_training_round

    def stat(self, name: str) -> Any:
        """A number of `/status`."""
        return self.node.get_stats()[name]

    def digests(self) -> dict[int, bytes]:
        """Of the retained states."""
        states = self.node.core.require_parts().replica.states()
        return {state.round: state.digest for state in states}


@contextmanager
def running(folder: Path, seed: int, tracker: str | None = None) -> Iterator[Runner]:
    """A loop that runs, until the end of the block."""
    model = TinyModel(seed)
    node = make_node(folder, model, tracker)
    node.start()
    runner = Runner(node, model, SwarmOptimizer(adamw(model), node), seed)
    runner.goes.set()
    thread = threading.Thread(target=runner.run, name=f"loop {seed}")
    thread.start()
    try:
        yield runner
    finally:
        runner.ends.set()
        runner.goes.set()
        thread.join()
    assert runner.error is None, runner.error


def agree(runners: list[Runner]) -> Callable[[], bool]:
    """A question: do all hold the same state of a round, and have they used each other's work?"""

    def asked() -> bool:
        logs = [runner.digests() for runner in runners]
        shared = set.intersection(*(set(log) for log in logs))
        differing = {r for r in shared if len({log[r] for log in logs}) > 1}
        have_used = all(runner.stat("foreign_contributions_used") >= 2 for runner in runners)
        return bool(shared) and not differing and have_used

    return asked
