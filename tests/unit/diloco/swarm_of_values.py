"""Seeded outer states and contributions for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neuroswarm.codecs.registry import Codec, Int4
from neuroswarm.diloco.outer import AgreedContribution
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.values import NodeId

SIZES = (300, 77)
BLOCK = 16


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(20, "big"))


def start(rules: Rules | None = None, seed: int = 0) -> OuterState:
    source = torch.Generator().manual_seed(seed)
    named = [(f"part{k}", torch.randn(size, generator=source)) for k, size in enumerate(SIZES)]
    return genesis(rules or Rules(codec_block=BLOCK), bytes(32), named)


def contribute(
    peer: int,
    deltas: Sequence[torch.Tensor],
    *,
    tokens: int = 1000,
    round_: int = 0,
    codec: Codec = Int4(BLOCK),  # noqa: B008 (frozen)
) -> AgreedContribution:
    payloads = tuple(codec.encode(delta) for delta in deltas)
    name = round_.to_bytes(16, "big") + peer.to_bytes(16, "big")
    return AgreedContribution(node(peer), name, 50, tokens, payloads)


def honest_deltas(num_peers: int, seed: int = 1, scale: float = 0.01) -> list[list[torch.Tensor]]:
    source = torch.Generator().manual_seed(seed)
    shared = [torch.randn(size, generator=source) for size in SIZES]
    return [
        [scale * (part + 0.5 * torch.randn(len(part), generator=source)) for part in shared]
        for _ in range(num_peers)
    ]


def decoded_mean(agreed: Sequence[AgreedContribution], fragment: int) -> torch.Tensor:
    return torch.stack([c.payloads[fragment].decode() for c in agreed]).mean(dim=0)
