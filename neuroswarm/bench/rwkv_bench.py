"""Measures how fast RWKV-7 trains: in chunks, and with loops over time, in turns.

Inner steps of the real trainer, with its optimiser, on random tokens. Knows nothing of the
command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from neuroswarm.bench.promise import tell
from neuroswarm.bench.rwkv_measures import Measured, check
from neuroswarm.clock import SystemClock
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import Batch
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.wkv7 import Wkv, wkv_by_steps, wkv_in_chunks
from neuroswarm.training.trainer import Trainer

REPORT_VERSION = 1
VOCAB_SIZE = 256


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured."""

    dim: int
    num_layers: int
    batch_size: int
    length: int
    """Tokens of a sequence."""
    turns: int
    """In each, one inner step with each loop over time, and several in chunks."""
    chunk_steps: int
    num_threads: int
    is_judged: bool


def run_rwkv_bench(setup: Setup, say: Callable[[str], None]) -> dict[str, Any]:
    """Carry it out; returns the report as JSON values.

    Args:
        setup: What is measured.
        say: Takes lines for people.

    Threads: sets the number of torch's threads for the calling one, and puts it back.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(setup.num_threads)
    try:
        measured = _measure(setup)
    finally:
        torch.set_num_threads(before)
    say(
        f"{measured.num_params:,} parameters, {setup.batch_size} x {setup.length} tokens a step, "
        f"{setup.num_threads} threads"
    )
    for line in measured.lines():
        say(line)
    promises = check(measured) if setup.is_judged else []
    return {
        "version": REPORT_VERSION,
        "setup": asdict(setup),
        "measured": measured.to_json(),
        "promises": tell(promises, say),
    }


def wkv_by_matrices(
    r: Tensor, log_w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence as its formula is written: a product with a matrix a b^T for each token.

    Args:
        r: As for `wkv_in_chunks`, like all the others.
        log_w: As there.
        k: As there.
        v: As there.
        a: As there.
        b: As there.
        state: As there.

    Returns:
        As there.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4.1. The public package `rwkv` has such
        a loop where it has no kernel.
    """
    w = log_w.exp()
    outputs = []
    for t in range(r.shape[1]):
        transition = a[:, t, :, :, None] * b[:, t, :, None, :]
        added = v[:, t, :, :, None] * k[:, t, :, None, :]
        state = state * w[:, t, :, None, :] + state @ transition + added
        outputs.append((state @ r[:, t, :, :, None]).squeeze(-1))
    return torch.stack(outputs, dim=1), state


def _measure(setup: Setup) -> Measured:
    chunked, looped = _trainer(setup, wkv_in_chunks), _trainer(setup, wkv_by_matrices)
    lean = _trainer(setup, wkv_by_steps)
    num_params = sum(chunked.fragments.sizes)
    chunk_s: list[float] = []
    loop_s: list[float] = []
    lean_s: list[float] = []
    for trainer in (chunked, looped, lean):
        trainer.step()  # memory is taken for the first time
    for _ in range(setup.turns):
        loop_s.append(looped.step().seconds)
        lean_s.append(lean.step().seconds)
        chunk_s += [chunked.step().seconds for _ in range(setup.chunk_steps)]
    return Measured(num_params, setup.batch_size * setup.length, chunk_s, loop_s, lean_s)


def _trainer(setup: Setup, wkv: Wkv) -> Trainer:
    shape = Rwkv7Config(dim=setup.dim, num_layers=setup.num_layers, vocab_size=VOCAB_SIZE)
    config = TrainingConfig(model="rwkv7", dim=setup.dim, num_layers=setup.num_layers)
    return Trainer(Rwkv7(shape, wkv=wkv), _RandomTokens(setup), config, clock=SystemClock())


class _RandomTokens:
    """Batches of random tokens, always the same for one index."""

    def __init__(self, setup: Setup) -> None:
        self._shape = (setup.batch_size, setup.length + 1)

    def train(self, index: int) -> Batch:
        """Batch `index`."""
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, VOCAB_SIZE, self._shape, generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Another one."""
        return self.train(-1 - index)
