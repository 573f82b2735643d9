"""A model card tells what the log of the node leads to, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.export.model_card import render_card
from neuroswarm.export.source import open_source
from neuroswarm.export.training_log import TrainingLog, read_log
from neuroswarm.node.workload import Workload
from neuroswarm.testing.state_on_disk import write_state
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

ANNA, BERT = "a" * 40, "b" * 40


def commit(round_: int, digest: str, signers: list[str], **more: Any) -> dict[str, Any]:
    return {
        "event": "commit", "time": 1.7e9 + 60 * round_, "round": round_, "digest": digest,
        "signers": signers, "is_repair": False, "is_download": False, "held_out_loss": 5.0 - round_,
        "total_tokens": 1000 * round_, **more,
    }  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Path:
    write_state(tmp_path, Workload(TinyModel(), tiny_text()), SwarmNodeConfig(), round_=3)
    return tmp_path


def write_log(node: Path, *events: dict[str, Any], name: str = "events.jsonl") -> TrainingLog:
    (node / name).write_text(
        "".join(json.dumps(event) + "\n" for event in events) + '{"event": "co'
    )
    return read_log(open_source(node))


def test_commits_that_lead_to_the_state_are_told(node: Path):
    digest = open_source(node).state.digest.hex()
    log = write_log(
        node,
        commit(1, "x", [ANNA]),
        {"event": "published", "round": 1},
        commit(2, "y", []),
        commit(3, digest, [ANNA, BERT]),
    )
    assert (log.first_round, log.last_round, log.num_rounds, log.num_empty) == (1, 3, 3, 1)
    assert log.contributions == {ANNA: 2, BERT: 1}
    assert (log.first_loss, log.last_loss) == ((1, 4.0), (3, 2.0))
    assert log.num_tokens == 3000
    card = render_card(open_source(node), log, "safetensors")
    assert f"| `{ANNA}` | 2 |" in card
    assert "- last held-out loss: 2.0000 nats a token, round 3" in card
    assert '"aggregation_method": "trimmed_mean"' in card


def test_both_files_of_the_log_are_read_in_order(node: Path):
    digest = open_source(node).state.digest.hex()
    (node / "events.1.jsonl").write_text(json.dumps(commit(2, "x", [BERT])) + "\n")
    assert write_log(node, commit(3, digest, [ANNA])).contributions == {ANNA: 1, BERT: 1}


def test_what_came_of_a_lineage_that_was_given_up_is_left_out(node: Path):
    digest = open_source(node).state.digest.hex()
    log = write_log(
        node,
        commit(2, "x", [BERT]),
        commit(3, "z", [BERT]),
        commit(2, "y", [ANNA], is_repair=True),
        commit(3, digest, [ANNA]),
    )
    assert log.contributions == {ANNA: 2}


@pytest.mark.parametrize("digest", ["0" * 64, ""])
def test_a_log_that_leads_elsewhere_is_not_believed(node: Path, digest: str):
    assert not write_log(node, commit(2, "x", [ANNA]), commit(3, digest, [ANNA])).is_known
    card = render_card(open_source(node), read_log(open_source(node)), "safetensors")
    assert "does not tell of it" in card
    assert ANNA not in card
