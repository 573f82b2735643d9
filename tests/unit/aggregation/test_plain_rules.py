import itertools

import pytest
import torch

from neuroswarm.aggregation.coordinate import mean, median, trimmed_mean
from neuroswarm.aggregation.exact import CHUNK_VALUES, gram_of_rows, halving_sum, norm
from neuroswarm.aggregation.krum import count_neighbours, krum, krum_scores
from neuroswarm.aggregation.preparation import nnm
from neuroswarm.aggregation.sorting import middle_network, middle_rows
from neuroswarm.errors import QuorumError


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n", range(1, 10))
def test_networks_find_the_middle_of_every_zero_one_input(n: int):
    # A network that is right on all inputs of zeros and ones is right on all (Knuth, 0-1 law).
    inputs = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n))).T.contiguous()
    for f in range((n + 1) // 2):
        rows = [row.clone() for row in inputs]
        middle = middle_rows(rows, f, torch.empty_like(rows[0]))
        expected = inputs.sort(dim=0).values[f : n - f]
        assert torch.equal(torch.stack(middle).sort(dim=0).values, expected)


@pytest.mark.parametrize("n", [16, 33, 64])
def test_networks_of_many_rows_find_the_middle(n: int):
    inputs = seeded(n, 50)
    middle = middle_rows([row.clone() for row in inputs], n // 4, torch.empty(50).double())
    expected = inputs.sort(dim=0).values[n // 4 : n - n // 4]
    assert torch.equal(torch.stack(middle).sort(dim=0).values, expected)


def test_pruned_networks_are_smaller_than_whole_ones():
    assert len(middle_network(8, 3)) < 19
    assert middle_network(8, 0) == ()


def test_trimmed_mean_crosses_chunks_without_a_seam():
    rows = seeded(5, CHUNK_VALUES + 7)
    expected = rows.sort(dim=0).values[1:4].mean(dim=0)
    assert torch.allclose(trimmed_mean(rows, 1), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", ["mean", "median", "trimmed", "krum", "nnm"])
def test_no_rule_writes_its_input(rule: str):
    rows = seeded(7, 40)
    rows[2, 3] = -0.0
    before = rows.clone()
    {
        "mean": lambda: mean(rows),
        "median": lambda: median(rows),
        "trimmed": lambda: trimmed_mean(rows, 2),
        "krum": lambda: krum(rows, 2).mul_(0),
        "nnm": lambda: nnm(rows, 2).mul_(0),
    }[rule]()
    assert torch.equal(rows, before)
    assert bool(torch.signbit(rows[2, 3]))


@pytest.mark.parametrize("rule", ["mean", "median", "trimmed", "krum"])
def test_the_order_of_rows_does_not_matter(rule: str):
    rows = seeded(7, 40)
    shuffled = rows[torch.tensor([3, 1, 6, 0, 2, 5, 4])]
    run = {
        "mean": mean,
        "median": median,
        "trimmed": lambda r: trimmed_mean(r, 2),
        "krum": lambda r: krum(r, 2),
    }[rule]
    assert torch.allclose(run(rows), run(shuffled), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    "run",
    [mean, median, lambda r: trimmed_mean(r, 2), lambda r: krum(r, 2)],
    ids=["mean", "median", "trimmed", "krum"],
)
def test_a_shift_of_all_rows_shifts_the_result(run):
    rows, shift = seeded(8, 30), seeded(30, seed=1)
    assert torch.allclose(run(rows + shift), run(rows) + shift, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "run",
    [lambda r: trimmed_mean(r, 2), median, lambda r: krum(r, 2), lambda r: nnm(r, 2)],
    ids=["trimmed", "median", "krum", "nnm"],
)
def test_equal_rows_come_out_as_they_are(run):
    row = seeded(20)
    result = run(row.expand(7, 20).clone())
    assert torch.allclose(result, row.expand_as(result), rtol=1e-14)


def test_coordinate_rules_stay_in_the_honest_range_with_f_attackers_and_leave_it_with_one_more():
    honest = seeded(5, 30)
    for huge in (1e30, -1e30):
        attacked = torch.cat([honest, torch.full((2, 30), huge).double()])
        result = trimmed_mean(attacked, 2)
        assert bool((result >= honest.min(0).values).all())
        assert bool((result <= honest.max(0).values).all())
        one_more = torch.cat([attacked, torch.full((1, 30), huge).double()])
        assert float(trimmed_mean(one_more, 2).abs().min()) > 1e29


def test_krum_picks_an_honest_row_among_far_ones():
    honest = seeded(5, 30)
    attacked = torch.cat([torch.full((1, 30), 1e9).double(), honest, -honest[:1] * 1e6])
    chosen = krum(attacked, 2)
    assert any(torch.equal(chosen, row) for row in honest)


@pytest.mark.parametrize(
    ("run", "n", "f"),
    [(trimmed_mean, 4, 2), (trimmed_mean, 1, 1), (nnm, 2, 1), (krum, 4, 1), (krum, 2, 0)],
)
def test_too_few_rows_are_refused_with_the_numbers(run, n: int, f: int):
    with pytest.raises(QuorumError, match=rf"f = {f}: {n} \(needs"):
        run(seeded(n, 5), f)


def test_a_negative_f_is_refused():
    with pytest.raises(ValueError, match="num_byzantine: -1"):
        trimmed_mean(seeded(4, 5), -1)


def test_rows_that_are_not_finite_are_refused():
    rows = seeded(4, 5)
    rows[1, 1] = float("nan")
    with pytest.raises(ValueError, match="finite"):
        trimmed_mean(rows, 1)


def test_krum_neighbour_conventions():
    assert count_neighbours(8, 2, "n-f-2") == 4
    assert count_neighbours(8, 2, "n-f-1") == 5
    with pytest.raises(ValueError, match="n-f-2, n-f-1"):
        count_neighbours(8, 2, "n-f")
    with pytest.raises(ValueError, match="neighbours: 3"):
        krum_scores(gram_of_rows(seeded(3, 4)), 3)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 1000])
def test_halving_sum_adds_every_term_once_and_writes_nothing(count: int):
    terms = torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor([1.0, 2.0])
    before = terms.clone()
    total = count * (count - 1) / 2
    assert halving_sum(terms).tolist() == [total, 2 * total]
    assert torch.equal(terms, before)


def test_norm_is_that_of_the_whole_vector():
    values = seeded(CHUNK_VALUES * 2 + 5)
    assert norm(values) == pytest.approx(float(values.norm()), rel=1e-12)
