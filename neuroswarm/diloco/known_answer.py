"""A test of this machine's arithmetic: the outer step on known input against a known digest.

A machine that fails it would hold other bits than its peers after every round.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from neuroswarm.codecs.lowbit import LowBit
from neuroswarm.config.legality import AggregationMethod
from neuroswarm.diloco.outer import AgreedContribution, advance
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.errors import ComputeError
from neuroswarm.values import NodeId

KNOWN_DIGEST = "bc698e359eed075590fe99d03818ef939c6b760d225305a9965d6833999bc3c7"
"""Of `compute_digest`. Changes only when the outer step is changed on purpose, and then all
peers of a swarm must run the new version."""

_SIZES = (257, 33000)
"""Odd sizes, one over a chunk, so that vector bodies, tails and chunk borders all occur."""

_BLOCK = 256
_METHODS: tuple[AggregationMethod, ...] = ("trimmed_mean", "krum", "median", "mean")


def verify_arithmetic() -> None:
    """Return if this machine's outer step has the known result.

    Raises:
        ComputeError: It has not; this machine must not take part.

    Cost: under 50 ms.
    """
    found = compute_digest()
    if found != KNOWN_DIGEST:
        raise ComputeError(
            f"this machine's arithmetic differs: known answer {KNOWN_DIGEST[:16]}, "
            f"got {found[:16]} (torch {torch.__version__}, "
            f"{torch.backends.cpu.get_cpu_capability()}); it cannot hold the same bits as its peers"
        )


def compute_digest() -> str:
    """Digest after a round with each rule on input from a hash, as 64 hex digits."""
    summary = hashlib.sha256()
    named = [(f"part{k}", _values(f"initial {k}", size)) for k, size in enumerate(_SIZES)]
    rounds = [[_contribution(r, peer) for peer in range(count)] for r, count in enumerate((5, 2))]
    for method in _METHODS:
        state = genesis(Rules(aggregation_method=method, codec_block=_BLOCK), bytes(32), named)
        for agreed in rounds:
            state = advance(state, agreed).state
        summary.update(state.digest)
    return summary.hexdigest()


def _values(seed: str, count: int) -> Tensor:
    """Float32 values of many magnitudes, zeros and negative zeros among them."""
    raw = np.frombuffer(hashlib.shake_256(seed.encode()).digest(2 * count), dtype="<u2")
    words = torch.from_numpy(raw.astype(np.int32))
    mantissas = (words % 509 - 254).to(torch.float32)
    powers = torch.tensor([2.0**-90, 2.0**-30, 2.0**-9, 0.0], dtype=torch.float32)
    return mantissas * powers[(words // 512) % 4]


def _contribution(round_: int, peer: int) -> AgreedContribution:
    payloads = []
    for k, size in enumerate(_SIZES):
        num_blocks = -(-size // _BLOCK)
        need = num_blocks * (_BLOCK + 2)
        seed = f"contribution {round_} {peer} {k}".encode()
        raw = np.frombuffer(hashlib.shake_256(seed).digest(need), dtype=np.uint8)
        codes = (raw[: num_blocks * _BLOCK] % 15).astype(np.int8) - 7
        codes[size:] = 0
        words = raw[num_blocks * _BLOCK :].astype(np.int64).reshape(num_blocks, 2)
        # Scales of many magnitudes, the smallest legal one too; the last peer of the first
        # round is so long that it is rejected.
        exponents = words[:, 0] % 12 - 16 + (40 if peer == 4 else 0)
        exponents[words[:, 0] % 12 == 0] = -72
        scales = ((256 + words[:, 1]) * 2.0**exponents).astype(np.float32)
        payloads.append(
            LowBit(
                torch.from_numpy(codes.reshape(num_blocks, _BLOCK)),
                torch.from_numpy(scales),
                size,
            )
        )
    name = bytes([peer]) * 20
    tokens = 1000 * (peer + 1)
    return AgreedContribution(NodeId(name), bytes([round_, peer]) * 16, 50, tokens, tuple(payloads))
