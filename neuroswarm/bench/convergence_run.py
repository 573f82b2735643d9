"""One run of the convergence benchmark: alone, synchronous, or a swarm with its real outer step.

Refuses to know which runs are compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from neuroswarm.bench.convergence_plan import NUM_PEERS, Job
from neuroswarm.bench.jobs import Result
from neuroswarm.bench.task import PeerBatches, load_text
from neuroswarm.bench.training_run import Peer, make_peers
from neuroswarm.clock import SystemClock
from neuroswarm.codecs.registry import codec_of
from neuroswarm.data.sampler import Batch
from neuroswarm.demo.measures import allreduce_bytes
from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.schedule import plan_inner_steps
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import NonFiniteLoss
from neuroswarm.training.trainer import Trainer

CURVE_POINTS = 8
"""About so many held-out losses on the way, on fewer batches."""
CURVE_BATCHES = 2


def run_convergence_job(job: Job, data: Path | None = None) -> Result[Job]:
    """Make one run.

    Args:
        job: Which.
        data: Text file or folder; None takes the built-in text.

    Returns:
        The loss is of the last parameters: the outer ones of a swarm. A run that breaks, because
        something is not finite, has an infinite one.
    """
    started_at = time.monotonic()
    run = _swarm if job.kind == "swarm" else _single
    details: dict[str, Any] = {"curve": []}
    try:
        loss = run(job, data, details)
    except (NonFiniteLoss, ValueError):
        loss = math.inf
    return Result(job, loss, time.monotonic() - started_at, details)


class JoinedBatches:
    """The batches of several peers as one: a step on it is one on the mean of their gradients.

    So it is what a synchronous all-reduce computes, in float32 and without its rounding.
    """

    def __init__(self, peers: Sequence[PeerBatches]) -> None:
        self._peers = peers

    def train(self, index: int) -> Batch:
        """Training batches number `index` of all peers, one after the other."""
        inputs, targets = zip(*(peer.train(index) for peer in self._peers), strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Held-out batch `index` of `num_batches`, the same for all peers."""
        return self._peers[0].held_out(index, num_batches)


def _single(job: Job, data: Path | None, details: dict[str, Any]) -> float:
    """One model, on the data of one peer or of all; its bytes are those of an all-reduce."""
    task, seed = job.task, job.seed
    text = load_text(data, task.context)
    parts = range(1 if job.kind == "alone" else NUM_PEERS)
    batches = JoinedBatches([PeerBatches(text, part, task, seed) for part in parts])
    trainer = Trainer(task.model(seed), batches, task.training(seed), clock=SystemClock())
    trainer.follow(plan_inner_steps(job.rules, 0))
    num_params = details["num_params"] = sum(trainer.fragments.sizes)
    details["bytes_per_peer"] = job.steps * allreduce_bytes(len(parts), num_params)
    every = max(1, job.steps // CURVE_POINTS)
    for step in range(1, job.steps + 1):
        trainer.step()
        if step % every == 0:
            details["curve"].append([step, trainer.evaluate(None, CURVE_BATCHES)])
    return trainer.evaluate(None, task.eval_batches)


def _swarm(job: Job, data: Path | None, details: dict[str, Any]) -> float:
    text = load_text(data, job.task.context)
    peers = make_peers(job.task, text, job.rules, job.seed, range(NUM_PEERS))
    trainer = peers[0].trainer
    named = zip(trainer.fragments.names, trainer.local(), strict=True)
    state = genesis(job.rules, trainer.fragments.architecture, named)
    codec = codec_of(job.rules)
    payload = sum(codec.packed_size(fragment.num_params) for fragment in state.fragments)
    lengths = job.round_lengths
    details["num_params"] = state.num_params
    details["bytes_per_peer"] = (NUM_PEERS - 1) * payload * len(lengths)
    details["rejected"] = 0
    every, done = max(1, len(lengths) // CURVE_POINTS), 0
    for round_, steps in enumerate(lengths, start=1):
        state = _play_round(state, peers, steps, details)
        done += steps
        if round_ % every == 0:
            details["curve"].append([done, trainer.evaluate(state.params, CURVE_BATCHES)])
    return trainer.evaluate(state.params, job.task.eval_batches)


def _play_round(
    state: OuterState, peers: Sequence[Peer], steps: int, details: dict[str, Any]
) -> OuterState:
    outcome = advance(state, [peer.contribute(state, steps) for peer in peers])
    for peer in peers:
        peer.follow(state, outcome.state)
    details["rejected"] += len(outcome.rejected)
    return outcome.state
