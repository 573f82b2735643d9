"""The plain rules against byzfl 0.0.11; see tests/data/README.md for the keys."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from neuroswarm.aggregation.bucketing import bucketing
from neuroswarm.aggregation.centered_clipping import centered_clipping
from neuroswarm.aggregation.coordinate import mean, median, trimmed_mean
from neuroswarm.aggregation.exact import gram_of_rows
from neuroswarm.aggregation.geometric_median import geometric_median
from neuroswarm.aggregation.krum import (
    krum,
    krum_choice,
    krum_scores,
    multi_krum,
    multi_krum_choice,
)
from neuroswarm.aggregation.preparation import adaptive_clipping, clip_norms, nnm

VECTORS = Path(__file__).parents[2] / "data" / "byzfl_vectors.npz"


@cache
def vectors() -> dict[str, np.ndarray]:
    with np.load(VECTORS) as archive:
        return {key: archive[key] for key in archive.files}


def cases(output: str) -> Iterator[tuple[torch.Tensor, int, np.ndarray]]:
    """Input rows in float64, f, and the expected output, for every stored case."""
    found = 0
    for key, expected in vectors().items():
        parts = key.split("/")
        if parts[-1] == output and parts[0] != "attacks":
            rows = torch.from_numpy(vectors()["/".join([*parts[:3], "x"])]).double()
            found += 1
            yield rows, int(parts[3][1:]) if len(parts) == 5 else 0, expected
    assert found >= 15, f"only {found} cases of {output}"


def assert_close(found: torch.Tensor, expected: np.ndarray) -> None:
    # Outputs of d = 1000 are stored as float32.
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-5)


def test_mean():
    for rows, _, expected in cases("Average"):
        assert_close(mean(rows), expected)


def test_median():
    for rows, _, expected in cases("Median"):
        assert_close(median(rows), expected)


def test_trimmed_mean():
    for rows, f, expected in cases("TrMean"):
        assert_close(trimmed_mean(rows, f), expected)


def test_trimmed_mean_in_float32():
    for rows, f, expected in cases("TrMean"):
        found = trimmed_mean(rows.float(), f)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-3)


def test_krum_with_byzfls_neighbours():
    for rows, f, expected in cases("Krum_index"):
        assert krum_choice(gram_of_rows(rows), f, "n-f-1") == int(expected)
        assert torch.equal(krum(rows, f, "n-f-1"), rows[int(expected)])


def test_krum_scores_with_byzfls_neighbours():
    for rows, f, expected in cases("Krum_scores_nf1"):
        found = krum_scores(gram_of_rows(rows), len(rows) - f - 1)
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-6)


def test_krum_with_the_papers_neighbours():
    refused = 0
    for rows, f, expected in cases("ref_Krum_index_nf2"):
        gram = gram_of_rows(rows)
        scores = krum_scores(gram, len(rows) - f - 2)
        assert int(scores.argmin()) == int(expected)
        if len(rows) >= 2 * f + 3:
            assert krum_choice(gram, f) == int(expected)
        else:
            refused += 1
            with pytest.raises(ValueError, match="too few"):
                krum_choice(gram, f)
    assert refused > 0


def test_krum_scores_with_the_papers_neighbours():
    for rows, f, expected in cases("ref_Krum_scores_nf2"):
        found = krum_scores(gram_of_rows(rows), len(rows) - f - 2)
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=1e-6)


def test_the_two_conventions_are_different_rules():
    differing = sum(
        krum_choice(gram_of_rows(rows), f, "n-f-1") != int(expected)
        for rows, f, expected in cases("ref_Krum_index_nf2")
    )
    assert differing > 20


def test_nearest_neighbour_mixing():
    for rows, f, expected in cases("NNM"):
        assert_close(nnm(rows, f), expected)


def test_mixing_then_trimmed_mean():
    for rows, f, expected in cases("NNM+TrMean"):
        assert_close(trimmed_mean(nnm(rows, f), f), expected)


def test_mixing_then_median():
    for rows, f, expected in cases("NNM+Median"):
        assert_close(median(nnm(rows, f)), expected)


def test_mixing_then_krum():
    for rows, f, expected in cases("NNM+Krum"):
        mixed = nnm(rows, f)
        scores = krum_scores(gram_of_rows(mixed), len(rows) - f - 1)
        chosen = krum(mixed, f, "n-f-1")
        # Rows that were mixed from the same neighbours score alike up to rounding.
        best = float(scores.min())
        alike = [i for i, s in enumerate(scores.tolist()) if s <= best * (1 + 1e-6) + 1e-9]
        assert any(torch.equal(chosen, mixed[i]) for i in alike)
        distances = [np.abs(mixed[i].numpy() - expected).max() for i in alike]
        assert min(distances) <= 1e-5 + 2e-5 * np.abs(expected).max()


def test_multi_krum_with_byzfls_neighbours():
    for rows, f, expected in cases("MultiKrum_selected"):
        chosen = multi_krum_choice(gram_of_rows(rows), f, "n-f-1")
        assert chosen == sorted(expected.tolist())
    for rows, f, expected in cases("MultiKrum"):
        assert_close(multi_krum(rows, f, "n-f-1"), expected)


def test_the_geometric_median_has_the_least_sum_of_distances():
    # Of an even number of rows on a line every point between the middle two is a median, so
    # there only the sum of distances is compared.
    for rows, _, expected in cases("GeometricMedian_nu1e-9_T2000"):
        found = geometric_median(rows)
        sums = [(rows - point).norm(dim=1).sum() for point in (found, torch.from_numpy(expected))]
        assert float(sums[0]) <= float(sums[1]) * (1 + 1e-7)
        if rows.shape[1] > 1:
            assert_close(found, expected)


@pytest.mark.parametrize(("tau", "steps"), [(100, 1), (1, 1), (1, 5), (10, 3)])
def test_centered_clipping_from_zero(tau: int, steps: int):
    for rows, _, expected in cases(f"CenteredClipping_tau{tau}_L{steps}"):
        assert_close(centered_clipping(rows, tau, steps), expected)


def test_centered_clipping_from_the_result_before():
    # byzfl keeps v between calls; here the caller moves the rows to it.
    for rows, _, expected in cases("CenteredClipping_tau1_L1_calls3"):
        start = torch.zeros(rows.shape[1]).double()
        for call in expected:
            start = start + centered_clipping(rows - start, 1.0, 1)
            assert_close(start, call)


def test_norm_clipping():
    for rows, _, expected in cases("Clipping_c2"):
        assert_close(clip_norms(rows, 2.0), expected)


def test_adaptive_robust_clipping():
    for rows, f, expected in cases("ARC"):
        assert_close(adaptive_clipping(rows, f), expected)


@pytest.mark.parametrize("size", [2, 3])
def test_bucketing_in_the_stored_order(size: int):
    for rows, _, expected in cases(f"Bucketing_s{size}"):
        # The permutation is stored beside the result.
        key = next(k for k, v in vectors().items() if v is expected)
        order = vectors()[f"{key}_perm"].tolist()
        assert_close(bucketing(rows, size, order), expected)
