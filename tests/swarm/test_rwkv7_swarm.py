"""Whole nodes that train the built-in RWKV-7 together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroswarm.testing.swarm import SETTINGS, Swarm

TRAINING: dict[str, Any] = {
    **SETTINGS["training"],
    "model": "rwkv7",
    "dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "context": 40,  # more than a chunk of the recurrence, and no multiple of it
}


async def test_two_nodes_train_rwkv7_and_hold_the_same_bits_after_every_round(tmp_path: Path):
    async with Swarm(tmp_path, is_model_built_in=True, training=TRAINING) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        assert anna.parts.trainer.fragments.names == (
            "emb",
            "blocks.0",
            "blocks.1",
            "ln_out",
            "head",
        )
        await swarm.until_round(4)
        await swarm.until_level()
        digests = await swarm.digests()
        assert len(digests) >= 4
        assert all(len(found) == 1 for found in digests.values()), digests
        for member in (anna, bert):
            assert member.statistics.contributions_published >= 2
            assert member.parts.trainer.num_dropped == 0
