from __future__ import annotations

import torch

from neuroswarm.diloco.outer import RoundOutcome
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.node.committing import Commit
from neuroswarm.node.statistics import Statistics, count_foreign
from neuroswarm.testing.speaker import ARCHITECTURE, Speaker

STATE = genesis(Rules(), ARCHITECTURE, [("only", torch.zeros(4))])
ME, ANNA, BERT = (Speaker(name).node_id for name in ("me", "anna", "bert"))
MINE, HERS, HIS = b"m" * 32, b"a" * 32, b"b" * 32


def commit(*, used: tuple[bytes, ...] = (MINE, HERS, HIS), is_repair: bool = False) -> Commit:
    rejected = {c: "too long" for c in (MINE, HERS, HIS) if c not in used}
    outcome = RoundOutcome(STATE, used, rejected, "trimmed_mean", 0)
    return Commit(STATE, STATE, outcome, (HERS, HIS, MINE), (ANNA, BERT, ME), is_repair)


def test_only_contributions_of_others_that_were_used_are_foreign():
    assert count_foreign(commit(), ME) == 2
    assert count_foreign(commit(used=(MINE, HERS)), ME) == 1
    assert count_foreign(commit(used=(MINE,)), ME) == 0
    assert count_foreign(Commit(STATE, STATE, None, (), (), is_repair=False), ME) == 0


def test_commits_are_counted_with_their_rejections():
    statistics = Statistics(ME)
    statistics.note(commit())
    statistics.note(commit(used=(MINE, HERS)))
    assert statistics.rounds_committed == 2
    assert statistics.contributions_agreed == 2
    assert statistics.foreign_contributions_used == 3
    assert statistics.contributions_rejected == 1
    assert statistics.rejections == {HIS.hex()[:8]: "too long"}
    assert statistics.last_set_size == 2
    assert statistics.last_method == "trimmed_mean"
    statistics.note(commit())
    assert statistics.rejections == {}


def test_downloads_and_repairs_are_no_rounds():
    statistics = Statistics(ME)
    statistics.note(Commit(STATE, STATE, None, (), (), is_repair=True))
    assert (statistics.downloads, statistics.repairs, statistics.rounds_committed) == (1, 1, 0)
    statistics.note(commit(is_repair=True))
    assert (statistics.repairs, statistics.rounds_committed) == (2, 1)


def test_all_counters_are_shown_and_the_identity_is_not():
    shown = Statistics(ME).as_dict()
    assert "me" not in shown
    assert {"rounds_committed", "repairs", "held_out_loss", "last_method"} <= set(shown)
