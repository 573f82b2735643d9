import itertools

import pytest
import torch

from neuroswarm.aggregation.bucketing import bucketing, make_buckets, random_order
from neuroswarm.aggregation.centered_clipping import (
    centered_clipping,
    centered_clipping_coefficients,
)
from neuroswarm.aggregation.coordinate import mean, median, trimmed_mean
from neuroswarm.aggregation.exact import CHUNK_VALUES, gram_of_rows, halving_sum, norm
from neuroswarm.aggregation.geometric_median import (
    geometric_median,
    geometric_median_coefficients,
)
from neuroswarm.aggregation.geometry import central_row
from neuroswarm.aggregation.krum import count_neighbours, krum, krum_scores, multi_krum
from neuroswarm.aggregation.preparation import adaptive_clipping, clip_norms, nnm
from neuroswarm.aggregation.sorting import middle_network, middle_rows
from neuroswarm.errors import QuorumError


def seeded(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def self_centred(rows: torch.Tensor) -> torch.Tensor:
    """Centred clipping as a round runs it, on plain rows."""
    shares = torch.tensor(
        centered_clipping_coefficients(gram_of_rows(rows), 0), dtype=torch.float64
    )
    return (rows * shares[:, None]).sum(dim=0)


RULES = {
    "mean": mean,
    "median": median,
    "trimmed": lambda r: trimmed_mean(r, 2),
    "krum": lambda r: krum(r, 2),
    "multi_krum": lambda r: multi_krum(r, 2),
    "geometric_median": geometric_median,
    "self_centred": self_centred,
}
OTHERS = {
    "nnm": lambda r: nnm(r, 2),
    "centered_clipping": lambda r: centered_clipping(r, 1.0, 3),
    "clip_norms": lambda r: clip_norms(r, 2.0),
    "adaptive_clipping": lambda r: adaptive_clipping(r, 2),
    "bucketing": lambda r: bucketing(r, 2, range(len(r))),
}


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


@pytest.mark.parametrize("rule", [*RULES, *OTHERS])
def test_no_rule_writes_its_input(rule: str):
    rows = seeded(7, 40)
    rows[2, 3] = -0.0
    before = rows.clone()
    (RULES | OTHERS)[rule](rows).mul_(0)
    assert torch.equal(rows, before)
    assert bool(torch.signbit(rows[2, 3]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("rule", [*RULES, *OTHERS])
def test_rows_that_are_not_finite_are_refused(rule: str, bad: float):
    rows = seeded(7, 5)
    rows[1, 1] = bad
    with pytest.raises(ValueError, match="finite"):
        (RULES | OTHERS)[rule](rows)


def test_rows_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match="too large"):
        geometric_median(torch.full((3, 2), 1e200, dtype=torch.float64))


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_rows_does_not_matter(rule: str):
    rows = seeded(7, 40)
    shuffled = rows[torch.tensor([3, 1, 6, 0, 2, 5, 4])]
    run = RULES[rule]
    assert torch.allclose(run(rows), run(shuffled), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_a_shift_of_all_rows_shifts_the_result(rule: str):
    rows, shift, run = seeded(8, 30), seeded(30, seed=1), RULES[rule]
    assert torch.allclose(run(rows + shift), run(rows) + shift, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("rule", [*RULES, "nnm", "bucketing"])
def test_equal_rows_come_out_as_they_are(rule: str):
    row = seeded(20)
    result = (RULES | OTHERS)[rule](row.expand(7, 20).clone())
    assert torch.allclose(result, row.expand_as(result), rtol=1e-14)


@pytest.mark.parametrize("rule", ["geometric_median", "self_centred", "median"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_rules_for_half_of_the_rows_work_for_one_two_and_three(rule: str, n: int):
    rows = seeded(n, 6)
    result = RULES[rule](rows)
    assert bool((result >= rows.min(0).values - 1e-12).all())
    assert bool((result <= rows.max(0).values + 1e-12).all())
    if n <= 2 and rule != "self_centred":
        assert torch.allclose(result, rows.mean(dim=0))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("rule", ["geometric_median", "self_centred", "multi_krum"])
def test_the_distance_to_the_honest_mean_is_bounded_whatever_two_of_seven_send(
    rule: str, size: float
):
    honest = seeded(5, 30)
    centre = honest.mean(dim=0)
    farthest = float((honest - centre).norm(dim=1).max())
    for direction in (seeded(30, seed=9), -centre, honest[0]):
        attacked = torch.cat([honest, size * direction.expand(2, -1)])
        distance = float((RULES[rule](attacked) - centre).norm())
        assert distance <= 2 * (7 - 2) / (7 - 4) * farthest  # 2 (P - f) / (P - 2 f)


@pytest.mark.parametrize("rule", ["geometric_median", "self_centred"])
def test_more_than_half_hostile_rows_decide(rule: str):
    attacked = torch.cat([seeded(3, 30), torch.full((4, 30), 1e6).double()])
    assert float(RULES[rule](attacked).mean()) > 0.99e6


def test_the_geometric_median_of_a_triangle_is_its_fermat_point():
    # All sides are seen under 120 degrees: the unit vectors to the corners add up to 0.
    corners = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]]).double()
    point = geometric_median(corners)
    units = torch.nn.functional.normalize(corners - point, dim=1)
    assert float(units.sum(dim=0).norm()) < 1e-8


def test_the_geometric_median_does_not_depend_on_units():
    rows = seeded(6, 20)
    for scale in (2.0**-40, 2.0**40):
        assert torch.allclose(geometric_median(rows * scale), geometric_median(rows) * scale)


def test_coefficients_are_shares():
    gram = gram_of_rows(seeded(9, 20))
    for find in (geometric_median_coefficients, centered_clipping_coefficients):
        found = find(gram, 2)
        assert min(found) >= 0
        assert sum(found) == pytest.approx(1.0, abs=1e-12)


def test_the_central_row_is_the_one_nearest_to_more_than_half():
    rows = torch.tensor([[0.0], [10.0], [11.0], [12.5], [100.0]]).double()
    assert central_row(gram_of_rows(rows)) == (2, pytest.approx(1.5))
    rows = torch.tensor([[7.0], [3.0], [3.0], [3.0], [100.0]]).double()
    assert central_row(gram_of_rows(rows)) == (1, 0.0)
    assert geometric_median(rows).item() == 3.0


def test_random_orders_are_permutations_and_every_one_is_as_likely():
    counts: dict[tuple[int, ...], int] = {}
    for number in range(2400):
        order = tuple(random_order(4, number.to_bytes(4, "big")))
        assert sorted(order) == [0, 1, 2, 3]
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    # Chi squared with 23 degrees of freedom: 49.7 is passed once in 1000.
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7


def test_the_order_of_a_seed_never_changes():
    assert random_order(8, b"seed") == [5, 7, 6, 2, 1, 3, 4, 0]
    assert random_order(0, b"") == []
    assert random_order(1, b"") == [0]


def test_buckets_are_consecutive_and_the_last_may_be_shorter():
    assert make_buckets([4, 0, 3, 1, 2], 2) == [[0, 4], [1, 3], [2]]
    with pytest.raises(ValueError, match="bucket size: 0"):
        make_buckets([0], 0)
    with pytest.raises(ValueError, match="permutation"):
        bucketing(seeded(3, 2), 2, [0, 1, 1])


@pytest.mark.parametrize(("tau", "steps"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_centered_clipping_refuses_impossible_numbers(tau: float, steps: int):
    with pytest.raises(ValueError, match="tau"):
        centered_clipping(seeded(3, 2), tau, steps)
    with pytest.raises(ValueError, match="max_norm"):
        clip_norms(seeded(3, 2), -1.0)


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
    [
        (trimmed_mean, 4, 2),
        (trimmed_mean, 1, 1),
        (nnm, 2, 1),
        (krum, 4, 1),
        (krum, 2, 0),
        (multi_krum, 4, 1),
        (geometric_median, 4, 2),
        (adaptive_clipping, 2, 1),
    ],
)
def test_too_few_rows_are_refused_with_the_numbers(run, n: int, f: int):
    with pytest.raises(QuorumError, match=rf"f = {f}: {n} \(needs"):
        run(seeded(n, 5), f)


def test_a_negative_f_is_refused():
    with pytest.raises(ValueError, match="num_byzantine: -1"):
        trimmed_mean(seeded(4, 5), -1)


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
