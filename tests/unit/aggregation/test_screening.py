import pytest
import torch

from neuroswarm.aggregation.exact import gram_of_rows
from neuroswarm.aggregation.screening import Verdict, screen


def judge(rows: torch.Tensor, max_rejected: int, ratio: float = 10.0, cosine: float = 0.5):
    return screen(
        gram_of_rows(rows),
        magnitude_ratio=ratio,
        cosine_threshold=cosine,
        max_rejected=max_rejected,
    )


def alike(num_peers: int, noise: float = 0.5, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(300, generator=source) + noise * torch.randn(
        num_peers, 300, generator=source
    )


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0, 2.5, 3.0, 4.0, 10.0, 100.0])
def test_no_honest_contribution_is_rejected(noise: float):
    # At noise 100 the directions are independent, as with few steps on disjoint data.
    rejected = 0
    for seed in range(30):
        for n in (3, 4, 8, 13):
            verdicts = judge(alike(n, noise, seed), max_rejected=n // 4)
            rejected += sum(verdict is not None for verdict in verdicts)
    assert rejected == 0


def test_a_far_too_long_contribution_is_rejected():
    rows = alike(5)
    rows[2] *= 50
    assert judge(rows, 1) == (None, None, Verdict.MAGNITUDE, None, None)


def test_a_contribution_against_the_rest_is_rejected():
    rows = alike(5)
    rows[4] *= -1
    assert judge(rows, 1) == (None, None, None, None, Verdict.DIRECTION)


def test_the_worst_are_rejected_first_and_never_more_than_allowed():
    rows = alike(9)
    rows[0] *= 20
    rows[1] *= 200
    rows[2] *= -1
    assert judge(rows, 1)[:3] == (None, Verdict.MAGNITUDE, None)
    assert judge(rows, 2)[:3] == (Verdict.MAGNITUDE, Verdict.MAGNITUDE, None)
    assert judge(rows, 3)[:3] == (Verdict.MAGNITUDE, Verdict.MAGNITUDE, Verdict.DIRECTION)
    assert judge(rows, 0) == (None,) * 9


def test_verdicts_follow_their_rows_when_rows_change_places():
    rows = alike(7)
    rows[1] *= -30
    rows[5] *= -1
    order = [6, 5, 4, 3, 2, 1, 0]
    verdicts = judge(rows, 2)
    assert [verdicts[i] for i in order] == list(judge(rows[order], 2))


def test_no_direction_is_judged_where_the_set_has_none():
    rows = torch.eye(6)
    rows[5] = -rows[0]
    assert judge(rows, 2) == (None,) * 6


def test_zero_contributions_neither_fail_nor_are_rejected():
    rows = alike(5)
    rows[3] = 0
    assert judge(rows, 2) == (None,) * 5
    assert judge(torch.zeros(4, 10), 1) == (None,) * 4
