"""The arms of the convergence benchmark, each with the best learning rate that was found for it.

A table; how its numbers were found, and what came of each, is in `docs/convergence.md`.
"""

from __future__ import annotations

from typing import Any

from neuroswarm.bench.convergence_plan import Arm

_COSINE = {"lr_schedule": "cosine", "lr_floor": 0.0, "warmup_steps": 40}
_MEAN = {"aggregation_method": "mean", "use_nnm": False}
_TWO_BITS = {"codec": "topk", "topk_chunk": 256, "topk_kept": 256}
_SPARSE = {"codec": "topk", "topk_chunk": 512, "topk_kept": 32}
_SPARSER = {"codec": "topk", "topk_chunk": 4096, "topk_kept": 64}


def _adamw(**rules: Any) -> dict[str, Any]:
    return {"inner_optimizer": "adamw", "inner_lr": 2e-3, **_COSINE, **rules}


def _muon(**rules: Any) -> dict[str, Any]:
    return {"inner_optimizer": "muon", "inner_lr": 5.6e-3, **_COSINE, **rules}


def _outer(lr: float, momentum: float) -> dict[str, Any]:
    return {"auto_scale": False, "outer_lr": lr, "outer_momentum": momentum}


REFERENCES = (
    Arm("alone, AdamW", "alone", _adamw(inner_lr=1e-3), "quick"),
    Arm("alone, Muon", "alone", _muon(), "quick"),
    Arm("synchronous, AdamW", "synchronous", _adamw(), "quick"),
    Arm("synchronous, Muon", "synchronous", _muon(inner_lr=8e-3), "quick"),
)

ASKED = (
    Arm("AdamW, H 10", "swarm", _adamw(inner_steps=10, **_outer(1.0, 0.0)), "full"),
    Arm("AdamW, H 50", "swarm", _adamw(inner_steps=50, inner_lr=1.4e-3), "full"),
    Arm("AdamW, H 100", "swarm", _adamw(inner_steps=100, inner_lr=1.4e-3), "full"),
)

HUNDRED = (
    Arm("Muon, two bits, H 16", "swarm", _muon(inner_steps=16, **_TWO_BITS), "quick"),
    Arm("Muon, two bits, H 16, no momentum", "swarm",
        _muon(inner_steps=16, **_TWO_BITS, **_outer(1.0, 0.0))),
    Arm("Muon, two bits, H 16, momentum 0.7", "swarm",
        _muon(inner_steps=16, **_TWO_BITS, **_outer(1.0, 0.7))),
    Arm("Muon, two bits, H 16, wsd", "swarm",
        _muon(inner_steps=16, **_TWO_BITS, lr_schedule="wsd", decay_share=0.5)),
    Arm("Muon, two bits, H 16, constant", "swarm",
        _muon(inner_steps=16, **_TWO_BITS, lr_schedule="constant")),
    Arm("Muon, two bits, H 16, centred clipping", "swarm",
        _muon(inner_steps=16, **_TWO_BITS, aggregation_method="centered_clipping")),
    Arm("Muon, H 26", "swarm", _muon(inner_steps=26), "full"),
    Arm("Muon, H 26, no momentum", "swarm", _muon(inner_steps=26, **_outer(1.0, 0.0))),
    Arm("Muon, H 26, rate 1.4, no momentum", "swarm", _muon(inner_steps=26, **_outer(1.4, 0.0))),
    Arm("Muon, H 26, rate 0.8, momentum 0.8", "swarm",
        _muon(inner_steps=26, **_outer(0.8, 0.8))),
    Arm("Muon, H 26, mean", "swarm", _muon(inner_steps=26, **_MEAN)),
    Arm("Muon, H 26, geometric median", "swarm",
        _muon(inner_steps=26, aggregation_method="geometric_median")),
    Arm("Muon, sparse, H 5", "swarm", _muon(inner_steps=5, **_SPARSE, **_outer(1.0, 0.0))),
    Arm("AdamW, H 26", "swarm", _adamw(inner_steps=26)),
)  # fmt: skip

FOUR_HUNDRED = (
    Arm("Muon, two bits, H 56", "swarm", _muon(inner_steps=56, **_TWO_BITS), "quick"),
    Arm("Muon, two bits, H 56, no momentum", "swarm",
        _muon(inner_steps=56, **_TWO_BITS, **_outer(1.0, 0.0))),
    Arm("Muon, two bits, H 56, momentum 0.7", "swarm",
        _muon(inner_steps=56, **_TWO_BITS, **_outer(1.0, 0.7))),
    Arm("Muon, two bits, H 56, wsd", "swarm",
        _muon(inner_steps=56, **_TWO_BITS, lr_schedule="wsd", decay_share=0.5)),
    Arm("Muon, two bits, H 56, constant", "swarm",
        _muon(inner_steps=56, **_TWO_BITS, lr_schedule="constant")),
    Arm("Muon, H 104", "swarm", _muon(inner_steps=104), "full"),
    Arm("Muon, H 104, no momentum", "swarm", _muon(inner_steps=104, **_outer(1.0, 0.0))),
    Arm("Muon, sparse, H 20", "swarm", _muon(inner_steps=20, **_SPARSE)),
    Arm("Muon, sparse, H 20, no momentum", "swarm",
        _muon(inner_steps=20, **_SPARSE, **_outer(1.0, 0.0))),
    Arm("Muon, sparser, H 6, no momentum", "swarm",
        _muon(inner_steps=6, **_SPARSER, **_outer(1.0, 0.0))),
    Arm("AdamW, H 104", "swarm", _adamw(inner_steps=104, inner_lr=1.4e-3)),
)  # fmt: skip

ARMS = (*REFERENCES, *ASKED, *HUNDRED, *FOUR_HUNDRED)
