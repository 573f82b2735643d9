"""A test of this machine's arithmetic: the outer step on known input against a known digest.

A machine that fails it would hold other bits than its peers after every round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroswarm.aggregation import exact
from neuroswarm.aggregation.bucketing import make_buckets, random_order
from neuroswarm.aggregation.preparation import NORM_SCALINGS
from neuroswarm.aggregation.rule import aggregate
from neuroswarm.codecs.lowbit import LowBit
from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.sparse import Layout, Sparse
from neuroswarm.config.legality import LEGAL_METHODS
from neuroswarm.diloco.outer import AgreedContribution, advance
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.errors import ComputeError
from neuroswarm.values import NodeId

KNOWN_DIGEST = "eaf865e8b38bb2780ae3064fecae42dc97c6bd4f4971d58839d81f15084ca8f5"
"""Of `compute_digest`. Changes only when the outer step is changed on purpose, and then all
peers of a swarm must run the new version."""

_SIZES = (257, 33000)
"""Odd sizes, one over a chunk, so that vector bodies, tails and chunk borders all occur."""

_BLOCK = 256
_LAYOUT = Layout(chunk=4096, kept=64)


def verify_arithmetic() -> None:
    """Return if this machine's outer step has the known result.

    Raises:
        ComputeError: It has not; this machine must not take part.

    Cost: under 100 ms.
    """
    found = compute_digest()
    if found != KNOWN_DIGEST:
        raise ComputeError(
            f"this machine's arithmetic differs: known answer {KNOWN_DIGEST[:16]}, "
            f"got {found[:16]} (torch {torch.__version__}, "
            f"{torch.backends.cpu.get_cpu_capability()}); it cannot hold the same bits as its peers"
        )


def compute_digest() -> str:
    """Digest of the outer step and of every rule, as 64 hex digits; the input is from a hash."""
    summary = hashlib.sha256()
    named = [(f"part{k}", _values(f"initial {k}", size)) for k, size in enumerate(_SIZES)]
    for codec, make in (("int4", _low_bit), ("topk", _sparse)):
        rules = Rules.model_validate(
            {
                "codec": codec,
                "codec_block": _BLOCK,
                "topk_chunk": _LAYOUT.chunk,
                "topk_kept": _LAYOUT.kept,
            }
        )
        state = genesis(rules, bytes(32), named)
        rounds = [[_contribution(make, r, peer) for peer in range(n)] for r, n in enumerate((5, 2))]
        for agreed in rounds:
            state = advance(state, agreed).state
        # Not the digest of the state: it covers the rules too, which may get new fields.
        for fragment in state.fragments:
            summary.update(fragment.leaf)
        for k in range(len(_SIZES)):
            for delta in _aggregates(codec, [c.payloads[k] for c in rounds[0]]):
                summary.update(delta.numpy().astype("<f4", copy=False).data)
    return summary.hexdigest()


def _aggregates(codec: str, payloads: Sequence[Payload]) -> Iterator[Tensor]:
    """What each rule for that codec makes of five payloads, and one of them in buckets."""
    gram_PP = exact.gram(payloads)
    for method, norm_scaling in zip(LEGAL_METHODS[codec], cycle(NORM_SCALINGS), strict=False):
        yield aggregate(
            payloads, method=method, num_byzantine=1, norm_scaling=norm_scaling, gram_PP=gram_PP
        )
    yield aggregate(
        payloads,
        method=LEGAL_METHODS[codec][0],
        num_byzantine=1,
        buckets=make_buckets(random_order(len(payloads), b"known answer"), 2),
        gram_PP=gram_PP,
    )


def _values(seed: str, count: int) -> Tensor:
    """Float32 values of many magnitudes, zeros and negative zeros among them."""
    raw = np.frombuffer(hashlib.shake_256(seed.encode()).digest(2 * count), dtype="<u2")
    words = torch.from_numpy(raw.astype(np.int32))
    mantissas = (words % 509 - 254).to(torch.float32)
    powers = torch.tensor([2.0**-90, 2.0**-30, 2.0**-9, 0.0], dtype=torch.float32)
    return mantissas * powers[(words // 512) % 4]


def _contribution(
    make: Callable[[int, int, int], Payload], round_: int, peer: int
) -> AgreedContribution:
    payloads = tuple(make(round_, peer, k) for k in range(len(_SIZES)))
    name = bytes([peer]) * 20
    return AgreedContribution(
        NodeId(name), bytes([round_, peer]) * 16, 50, 1000 * (peer + 1), payloads
    )


def _low_bit(round_: int, peer: int, fragment: int) -> LowBit:
    size = _SIZES[fragment]
    num_blocks = -(-size // _BLOCK)
    raw = _random_bytes(round_, peer, fragment, num_blocks * (_BLOCK + 2))
    codes = (raw[: num_blocks * _BLOCK] % 15).astype(np.int8) - 7
    codes[size:] = 0
    return LowBit.from_codes(
        torch.from_numpy(codes.reshape(num_blocks, _BLOCK)),
        _scales(raw[num_blocks * _BLOCK :], peer),
        size,
    )


def _sparse(round_: int, peer: int, fragment: int) -> Sparse:
    size = _SIZES[fragment]
    num_chunks, num_kept = _LAYOUT.num_chunks(size), _LAYOUT.num_kept(size)
    raw = _random_bytes(round_, peer, fragment, 2 * num_kept + 2 * num_chunks)
    chunks = np.minimum(np.arange(num_kept) // _LAYOUT.kept, num_chunks - 1)
    within = np.arange(num_kept) - chunks * _LAYOUT.kept
    # One of the 64 values in each 64th of a chunk, so that they ascend.
    indices = within * (_LAYOUT.chunk // _LAYOUT.kept) + raw[:num_kept] % 61
    positions = np.minimum(chunks * _LAYOUT.chunk + indices, size - num_kept + np.arange(num_kept))
    codes = (2 * (raw[num_kept : 2 * num_kept] % 4).astype(np.int8)) - 3
    return Sparse(
        torch.from_numpy(positions.astype(np.int64)),
        torch.from_numpy(codes),
        _scales(raw[2 * num_kept :], peer),
        size,
        _LAYOUT,
    )


def _random_bytes(round_: int, peer: int, fragment: int, count: int) -> NDArray[np.uint8]:
    seed = f"contribution {round_} {peer} {fragment}".encode()
    return np.frombuffer(hashlib.shake_256(seed).digest(count), dtype=np.uint8)


def _scales(raw: NDArray[np.uint8], peer: int) -> Tensor:
    """Scales of many magnitudes from two bytes each, the smallest legal one too.

    The last peer of the first round is so long that it is rejected.
    """
    words = raw.astype(np.int64).reshape(-1, 2)
    exponents = words[:, 0] % 12 - 16 + (40 if peer == 4 else 0)
    exponents[words[:, 0] % 12 == 0] = -72
    return torch.from_numpy(((256 + words[:, 1]) * 2.0**exponents).astype(np.float32))
