"""The arms of the convergence benchmark, each with the best learning rate that was found for it.

A table; how its numbers were found is in `docs/convergence.md`.
"""

from __future__ import annotations

from typing import Any

from neuroswarm.bench.convergence_plan import Arm

_COSINE = {"lr_schedule": "cosine", "lr_floor": 0.0, "warmup_steps": 40}


def _adamw(lr: float, **rules: Any) -> dict[str, Any]:
    return {"inner_optimizer": "adamw", "inner_lr": lr, **_COSINE, **rules}


def _muon(lr: float, **rules: Any) -> dict[str, Any]:
    return {"inner_optimizer": "muon", "inner_lr": lr, **_COSINE, **rules}


ARMS = (
    Arm("alone, AdamW", "alone", _adamw(4e-3), is_quick=True),
    Arm("alone, Muon", "alone", _muon(8e-3), is_quick=True),
    Arm("synchronous, AdamW", "synchronous", _adamw(4e-3), is_quick=True),
    Arm("synchronous, Muon", "synchronous", _muon(8e-3), is_quick=True),
    Arm("Muon, H 26", "swarm", _muon(8e-3, inner_steps=26), is_quick=True),
    Arm("AdamW, H 10", "swarm", _adamw(4e-3, inner_steps=10)),
    Arm("AdamW, H 50", "swarm", _adamw(4e-3, inner_steps=50)),
    Arm("AdamW, H 100", "swarm", _adamw(4e-3, inner_steps=100)),
)
