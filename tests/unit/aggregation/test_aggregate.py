import pytest
import torch

from neuroswarm.aggregation.bucketing import bucketing, make_buckets
from neuroswarm.aggregation.centered_clipping import centered_clipping_coefficients
from neuroswarm.aggregation.coordinate import median, trimmed_mean
from neuroswarm.aggregation.exact import CHUNK_CODES, gram, gram_of_rows
from neuroswarm.aggregation.geometric_median import geometric_median
from neuroswarm.aggregation.krum import krum_choice, multi_krum
from neuroswarm.aggregation.preparation import (
    lower_median,
    nnm,
    nnm_neighbours,
    norm_factors,
    norms,
)
from neuroswarm.aggregation.rule import METHODS, aggregate
from neuroswarm.codecs.lowbit import LowBit, encode_int4
from neuroswarm.codecs.payload import MAX_SCALE, MIN_SCALE, Payload
from neuroswarm.codecs.sparse import Layout, encode_topk
from neuroswarm.config.legality import COORDINATE_METHODS, LEGAL_METHODS, VECTOR_METHODS
from neuroswarm.errors import ConfigError, QuorumError

BLOCK = 16
ROBUST = [method for method in METHODS if method != "mean"]


def payloads_of(rows: torch.Tensor, codec: str = "int4") -> list[Payload]:
    if codec == "topk":
        return [encode_topk(row, Layout(BLOCK, 12)) for row in rows]
    return [encode_int4(row, BLOCK) for row in rows]


def plain(method: str, rows: torch.Tensor, f: int) -> torch.Tensor:
    """The rule on plain rows."""
    if method == "centered_clipping":
        shares = torch.tensor(centered_clipping_coefficients(gram_of_rows(rows), f)).double()
        return (rows * shares[:, None]).sum(dim=0)
    return {
        "mean": lambda: rows.mean(dim=0),
        "median": lambda: median(rows),
        "trimmed_mean": lambda: trimmed_mean(rows, f),
        "krum": lambda: rows[krum_choice(gram_of_rows(rows), f)],
        "multi_krum": lambda: multi_krum(rows, f),
        "geometric_median": lambda: geometric_median(rows, f),
    }[method]()


def copies_of(payloads: list[Payload]) -> list[dict[str, torch.Tensor]]:
    return [{k: t.clone() for k, t in p.to_tensors().items()} for p in payloads]


def decoded(payloads: list[Payload]) -> torch.Tensor:
    return torch.stack([payload.decode() for payload in payloads]).double()


def honest(num_peers: int, num_params: int = 700, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(num_params, generator=source) + 0.5 * torch.randn(
        num_peers, num_params, generator=source
    )


@pytest.mark.parametrize("num_params", [5, CHUNK_CODES, CHUNK_CODES * 3 + 7])
def test_the_gram_matrix_is_that_of_the_decoded_rows(num_params: int):
    payloads = payloads_of(honest(6, num_params))
    found = gram(payloads)
    assert torch.equal(found, found.T)
    assert torch.allclose(found, decoded(payloads) @ decoded(payloads).T, rtol=1e-6, atol=1e-9)


def test_the_gram_matrix_holds_at_both_ends_of_the_legal_scales():
    codes = torch.full((2, BLOCK), 7, dtype=torch.int8)
    for scale in (MIN_SCALE, MAX_SCALE):
        payload = LowBit.from_codes(codes, torch.full((2,), scale), 2 * BLOCK)
        assert float(gram([payload])[0, 0]) == 49.0 * 2 * BLOCK * scale * scale


PAIRS = [(codec, method) for codec, methods in LEGAL_METHODS.items() for method in methods]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("use_nnm", [False, True])
@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize(("codec", "method"), PAIRS)
def test_coded_rules_agree_with_the_plain_ones(
    codec: str, method: str, f: int, use_nnm: bool, size: int
):
    payloads = payloads_of(honest(13), codec)
    order = [5, 2, 9, 0, 12, 7, 3, 1, 11, 8, 4, 10, 6]
    rows = bucketing(decoded(payloads), size, order)
    mixed = nnm(rows, f) if use_nnm and f > 0 else rows
    found = aggregate(
        payloads,
        method=method,
        num_byzantine=f,
        norm_scaling="none",
        use_nnm=use_nnm,
        buckets=None if size == 1 else make_buckets(order, size),
    )
    if size == 1 and not use_nnm:
        assert torch.equal(mixed.sort(dim=0).values, decoded(payloads).sort(dim=0).values)
    assert found.dtype == torch.float32
    if size == 1:
        rows = decoded(payloads)  # in the order of the payloads: ties break by row order
        mixed = nnm(rows, f) if use_nnm and f > 0 else rows
    expected = plain(method, mixed, f)
    assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", COORDINATE_METHODS)
def test_coordinate_rules_refuse_sparse_contributions_and_name_the_legal_pairs(method: str):
    with pytest.raises(ConfigError, match=f"topk takes geometric_median.*{method} takes int4"):
        aggregate(payloads_of(honest(5), "topk"), method=method, num_byzantine=1)


def test_every_rule_is_in_the_table_of_legal_pairs():
    assert METHODS.keys() == {*COORDINATE_METHODS, *VECTOR_METHODS}
    assert {method for _, method in PAIRS} == METHODS.keys()
    for name, method in METHODS.items():
        assert (method.coefficients is None) == (name in COORDINATE_METHODS)


@pytest.mark.parametrize("buckets", [[[0, 1]], [[0, 1], [1, 2]], [[0, 1], [2, 3]]])
def test_buckets_that_do_not_hold_every_contribution_once_are_refused(buckets: list[list[int]]):
    with pytest.raises(ValueError, match="buckets"):
        aggregate(payloads_of(honest(3)), method="mean", num_byzantine=0, buckets=buckets)


def test_too_few_buckets_are_refused():
    buckets = make_buckets(range(6), 2)
    with pytest.raises(QuorumError, match="3"):
        aggregate(payloads_of(honest(6)), method="median", num_byzantine=2, buckets=buckets)


def test_the_krum_option_changes_the_choice():
    rows = honest(8, 300, seed=3)
    for seed in range(40):
        rows = honest(8, 60, seed=seed)
        results = [
            aggregate(
                payloads_of(rows),
                method="krum",
                num_byzantine=2,
                use_nnm=False,
                krum_neighbours=convention,
            )
            for convention in ("n-f-2", "n-f-1")
        ]
        if not torch.equal(*results):
            return
    pytest.fail("both conventions picked the same row in 40 sets")


@pytest.mark.parametrize("method", METHODS)
def test_aggregation_crosses_chunks_without_a_seam(method: str):
    num_params = 40_000
    payloads = [encode_int4(row, 256) for row in honest(5, num_params)]
    whole = aggregate(payloads, method=method, num_byzantine=1, norm_scaling="none", use_nnm=False)
    rows = decoded(payloads)
    expected = plain(method, rows, 1)
    assert torch.allclose(whole.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("codec", "method"), PAIRS)
def test_payloads_are_never_written(codec: str, method: str):
    payloads = payloads_of(honest(6), codec)
    before = copies_of(payloads)
    aggregate(payloads, method=method, num_byzantine=1).mul_(0)
    for payload, tensors in zip(copies_of(payloads), before, strict=True):
        assert payload.keys() == tensors.keys()
        assert all(torch.equal(payload[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    ("method", "n", "f"),
    [
        ("trimmed_mean", 4, 2),
        ("krum", 4, 1),
        ("multi_krum", 4, 1),
        ("median", 2, 1),
        ("geometric_median", 2, 1),
        ("centered_clipping", 4, 2),
    ],
)
def test_sets_too_small_for_f_are_refused(method: str, n: int, f: int):
    with pytest.raises(QuorumError):
        aggregate(payloads_of(honest(n)), method=method, num_byzantine=f)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="trimmed_mean"):
        aggregate(payloads_of(honest(3)), method="mode", num_byzantine=0)


def test_weights_count_in_the_mean_and_among_the_survivors_of_multi_krum_only():
    payloads = payloads_of(honest(3))
    rows = decoded(payloads)
    weighted = aggregate(
        payloads, [1.0, 2.0, 5.0], method="mean", num_byzantine=0, norm_scaling="none"
    )
    expected = (rows[0] + 2 * rows[1] + 5 * rows[2]) / 8
    assert torch.allclose(weighted.double(), expected, rtol=1e-5, atol=1e-6)
    weights = [1.0, 2.0, 5.0]
    for method in ("median", "trimmed_mean", "krum", "geometric_median", "centered_clipping"):
        without = aggregate(payloads, method=method, num_byzantine=0)
        assert torch.equal(without, aggregate(payloads, weights, method=method, num_byzantine=0))
    survivors = payloads_of(torch.cat([honest(5), honest(1) * -1e3]))
    found = aggregate(
        survivors, [*weights, 0.0, 0.0, 9.0], method="multi_krum", num_byzantine=1, use_nnm=False
    )
    expected = (decoded(survivors)[:3] * torch.tensor(weights)[:, None]).sum(dim=0) / 8
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0]])
def test_weights_that_do_not_fit_are_refused(weights: list[float]):
    with pytest.raises(ValueError, match="weights"):
        aggregate(payloads_of(honest(3)), weights, method="mean", num_byzantine=0)


def test_norm_factors_shorten_only_what_is_above_twice_the_lower_median():
    matrix = torch.diag(torch.tensor([1.0, 4.0, 9.0, 100.0, 0.0]).double())
    assert norms(matrix) == [1.0, 2.0, 3.0, 10.0, 0.0]
    assert norm_factors(matrix, "none") == [1.0] * 5
    assert norm_factors(matrix, "down") == [1.0, 1.0, 1.0, 0.4, 1.0]
    assert norm_factors(matrix, "both") == [2.0, 1.0, 2 / 3, 0.2, 0.0]
    assert norm_factors(matrix, "none", max_norm=2.0) == [1.0, 1.0, 2 / 3, 0.2, 1.0]
    # floor(2 * 1 * 4 / 5) = 1 is shortened to the next.
    assert norm_factors(matrix, "clip", num_byzantine=1) == [1.0, 1.0, 1.0, 0.3, 1.0]
    assert norm_factors(matrix, "clip") == [1.0] * 5
    with pytest.raises(ValueError, match="none, down, both, clip"):
        norm_factors(matrix, "up")


def test_the_lower_of_two_middle_values_is_the_median():
    assert lower_median([4.0, 1.0, 3.0, 2.0]) == 2.0
    assert lower_median([5.0]) == 5.0


def test_ties_between_neighbours_break_by_row_order_and_a_row_is_its_own_neighbour():
    matrix = torch.ones(5, 5).double()  # five equal rows: all distances are 0
    assert nnm_neighbours(matrix, 2) == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 3], [0, 1, 4]]


@pytest.mark.parametrize("use_nnm", [False, True])
@pytest.mark.parametrize("method", ROBUST)
@pytest.mark.parametrize("attack", ["negated", "tiny", "huge", "same", "spread"])
def test_f_attackers_of_eight_cannot_turn_or_blow_up_the_result(
    method: str, use_nnm: bool, attack: str
):
    rows = honest(6)
    centre = rows.mean(dim=0)
    hostile = {
        "negated": torch.stack([-centre, -centre]),
        "tiny": torch.stack([-centre * 1e-6, -centre * 1e-6]),
        "huge": torch.stack([-centre * 1e12, -centre * 1e12]),
        "same": torch.stack([rows[0], rows[0]]),
        "spread": torch.stack([centre * -1e3, centre * 1e3]),
    }[attack]
    payloads = payloads_of(torch.cat([hostile, rows]))
    result = aggregate(payloads, method=method, num_byzantine=2, use_nnm=use_nnm)
    spread = float((rows - centre).norm(dim=1).max())
    assert float((result - centre).norm()) <= 1.5 * spread
    assert float(result @ centre) > 0.5 * float(centre @ centre)


def test_the_mean_is_turned_by_one_attacker_without_norm_scaling_and_not_with_it():
    rows = honest(7)
    centre = rows.mean(dim=0)
    payloads = payloads_of(torch.cat([rows, -centre[None] * 1e3]))
    bare = aggregate(payloads, method="mean", num_byzantine=0, norm_scaling="none")
    bounded = aggregate(payloads, method="mean", num_byzantine=0, norm_scaling="down")
    assert float(bare @ centre) < 0
    assert float(bounded @ centre) > 0.4 * float(centre @ centre)


def test_one_attacker_more_than_f_does_break_the_trimmed_mean():
    rows = honest(5)
    centre = rows.mean(dim=0)
    payloads = payloads_of(torch.cat([rows, -centre.expand(3, -1) * 10]))
    result = aggregate(
        payloads, method="trimmed_mean", num_byzantine=2, norm_scaling="none", use_nnm=False
    )
    assert float((result - centre).norm()) > 0.5 * float(centre.norm())


def test_all_zero_contributions_give_zero():
    payloads = payloads_of(torch.zeros(4, 40))
    for method in METHODS:
        for scaling in ("none", "down", "both"):
            result = aggregate(payloads, method=method, num_byzantine=0, norm_scaling=scaling)
            assert result.tolist() == [0.0] * 40
            assert not bool(torch.signbit(result).any())
