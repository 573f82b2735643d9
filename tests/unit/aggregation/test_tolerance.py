from dataclasses import dataclass

import pytest

from neuroswarm.aggregation.methods import METHODS
from neuroswarm.aggregation.tolerance import (
    bucket_size,
    choose_rule,
    max_byzantine,
    num_byzantine,
)


@dataclass(frozen=True)
class Some:
    aggregation_method: str = "trimmed_mean"
    krum_f: int = 0
    trimmed_mean_beta: float = 0.1
    codec: str = "int4"
    bucket_size: int = 1


@pytest.mark.parametrize(
    ("n", "m", "rules", "f"),
    [
        (1, 1, Some(), 0),
        (3, 3, Some(), 0),
        (4, 4, Some(), 1),
        (8, 8, Some(), 2),
        (5, 8, Some(), 2),  # honest peers skip: M counts
        (4, 8, Some(), 1),  # never more than the rule bears
        (30, 8, Some(), 3),  # a tenth of the set
        (9, 9, Some(krum_f=3), 3),
        (5, 5, Some(krum_f=3), 2),
        (8, 8, Some("krum"), 2),
        (6, 8, Some("krum"), 1),
        (2, 2, Some("krum"), 0),
    ],
)
def test_f_of_a_set(n: int, m: int, rules: Some, f: int):
    assert num_byzantine(n, m, rules) == f


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_is_never_run_with_more_than_it_bears(method: str):
    for n in range(1, 30):
        for m in range(n, 60):
            chosen = choose_rule(n, m, Some(method, krum_f=2))
            assert 0 <= chosen.num_byzantine <= max_byzantine(chosen.method, n)


@pytest.mark.parametrize("n", range(1, 12))
@pytest.mark.parametrize("m", range(1, 24))
def test_the_fallback_begins_where_the_set_is_too_small_for_a_quarter_of_the_swarm(n: int, m: int):
    m = max(n, m)
    chosen = choose_rule(n, m, Some())
    assert chosen.is_fallback == (n <= 2 * (m // 4))
    assert chosen.method == ("median" if chosen.is_fallback else "trimmed_mean")


def test_krum_falls_back_to_the_median_below_its_own_minimum():
    assert str(choose_rule(2, 2, Some("krum"))) == "fallback median f=0"
    assert str(choose_rule(4, 4, Some("krum"))) == "fallback median f=1"
    assert str(choose_rule(5, 5, Some("krum"))) == "krum f=1"


def test_the_mean_stays_the_mean():
    assert choose_rule(1, 8, Some("mean")).method == "mean"


@pytest.mark.parametrize("method", ["krum", "multi_krum"])
def test_sparse_contributions_fall_back_to_the_geometric_median(method: str):
    for n, m in ((1, 1), (2, 2), (2, 8), (4, 8)):
        chosen = choose_rule(n, m, Some(method, codec="topk"))
        assert str(chosen) == f"fallback geometric_median f={(n - 1) // 2}"
    assert choose_rule(1, 8, Some("mean", codec="topk")).method == "mean"


@pytest.mark.parametrize(
    ("method", "n", "m", "asked", "size"),
    [
        ("trimmed_mean", 8, 8, 2, 1),  # 4 buckets do not bear 2
        ("trimmed_mean", 9, 9, 2, 2),  # 5 do
        ("trimmed_mean", 7, 7, 4, 3),  # 4 leaves 2 buckets, too few for f = 1
        ("trimmed_mean", 20, 4, 4, 4),
        ("krum", 13, 13, 4, 1),  # f = 3 needs 9 buckets
        ("krum", 10, 7, 4, 2),  # f = 1 needs 5
        ("geometric_median", 3, 3, 2, 2),  # f = 0
        ("trimmed_mean", 2, 8, 2, 1),  # the fallback averages nobody
    ],
)
def test_buckets_are_as_large_as_f_allows(method: str, n: int, m: int, asked: int, size: int):
    rules = Some(method, bucket_size=asked)
    chosen = choose_rule(n, m, rules)
    found = bucket_size(chosen, n, rules)
    assert found == size
    assert max_byzantine(chosen.method, -(-n // found)) >= chosen.num_byzantine
