"""A Hugging Face model that nodes trained together comes out as it is in their outer state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from neuroswarm.cli.main import run
from neuroswarm.export.source import open_source
from neuroswarm.node.workload import Workload
from neuroswarm.testing.swarm import SETTINGS, Swarm
from neuroswarm.testing.tiny_gpt2 import write_gpt2

TEXT = "the swarm trains on and on, and nobody is waited for. " * 400


@pytest.mark.slow
async def test_gpt2_trained_by_three_nodes_loads_offline_and_gives_equal_logits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from transformers import AutoModelForCausalLM

    folder = write_gpt2(tmp_path / "gpt2")
    (tmp_path / "text").write_text(TEXT)
    training: dict[str, Any] = {**SETTINGS["training"], "model": f"hf:{folder}"}
    async with Swarm(
        tmp_path, make_workload=lambda *_: Workload(data=tmp_path / "text"), training=training
    ) as swarm:
        members = anna, *_ = await swarm.found("anna", "bert", "carl")
        assert anna.parts.trainer.fragments.names[0] == "transformer.wte"  # the tied head is this
        await swarm.until_round(3)
        await swarm.until(
            lambda: (anna.statistics.durable_round or 0) >= 2, what="a state on the disk"
        )
        export = ["export", str(anna.folder), "--format", "hf", "--to"]
        assert run([*export, str(tmp_path / "meanwhile")]) == 0  # the node runs on
        digests = await swarm.digests()
        trainer = anna.parts.trainer
    assert len(digests) >= 3
    assert all(len(found) == 1 for found in digests.values()), digests

    out = tmp_path / "out"
    assert run([*export, str(out)]) == 0
    state = open_source(anna.folder).state
    logged = await anna.digests()
    assert logged.get(state.round, state.digest.hex()) == state.digest.hex()
    assert state.round >= 3
    assert f"wrote round {state.round}, state {state.digest.hex()[:8]}" in capsys.readouterr().out
    card = (out / "README.md").read_text()
    assert f"| digest of the state | `{state.digest.hex()}` |" in card
    assert all(f"| `{member.node_id.hex()}` |" in card for member in members)

    trainer.load(state.params)
    own = trainer._model.eval()
    loaded = AutoModelForCausalLM.from_pretrained(out, local_files_only=True).eval()
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    tokens = torch.tensor([list(TEXT[:48].encode())])
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, own(tokens).logits)
        loss = loaded(tokens, labels=tokens).loss
    untrained = AutoModelForCausalLM.from_config(loaded.config).eval()
    with torch.no_grad():
        assert loss < 0.8 * untrained(tokens, labels=tokens).loss
