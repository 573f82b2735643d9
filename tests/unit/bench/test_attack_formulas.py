"""The attacks against byzfl's vectors (tests/data/README.md), and what each of them promises."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from neuroswarm.bench import attacks

VECTORS = Path(__file__).parents[2] / "data" / "byzfl_vectors.npz"


def reference(name: str) -> Tensor:
    with np.load(VECTORS) as found:
        return torch.from_numpy(found[f"attacks/{name}"])


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("SignFlipping", attacks.sign_flip),
        ("IPM_tau2", lambda rows: attacks.ipm(rows, 2.0)),
        ("ALIE_tau1.5", lambda rows: attacks.alie(rows, 1.5)),
        ("Mimic_eps3", lambda rows: attacks.mimic(rows, 3)),
    ],
)
def test_the_formula_is_that_of_byzfl(name: str, attack):
    torch.testing.assert_close(attack(reference("honest")), reference(name))


def test_a_hidden_attack_has_its_length_and_its_angle_to_the_negated_mean():
    rows = reference("honest")
    cover = torch.linspace(-1.0, 2.0, 7, dtype=torch.float64)
    hidden = attacks.hidden_ipm(rows, 1.2, 5.0, cover)
    cosine = torch.nn.functional.cosine_similarity(hidden, -rows.mean(dim=0), dim=0)
    assert hidden.norm().item() == pytest.approx(5.0)
    assert cosine.item() == pytest.approx(math.cos(1.2))


def test_scaling_is_the_mean_enlarged():
    rows = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert attacks.scaling(rows, 100.0).tolist() == [200.0, 400.0]


def test_noise_has_the_length_that_was_asked_for_and_is_drawn_for_each_attacker():
    rows = torch.tensor([[3.0, 4.0] * 50, [6.0, 8.0] * 50])
    length = (rows.norm(dim=1).mean() * 9.0).item()
    noise = attacks.gaussian(rows, 2, 9.0, torch.Generator().manual_seed(1))
    assert noise.norm(dim=1).tolist() == pytest.approx([length, length], rel=1e-5)
    cosine = torch.nn.functional.cosine_similarity(noise[0], noise[1], dim=0)
    assert abs(cosine) < 0.5
    again = attacks.gaussian(rows, 2, 9.0, torch.Generator().manual_seed(1))
    assert torch.equal(noise, again)


def test_the_deviations_of_alie_follow_the_paper():
    # n = 50, f = 24: s = 26 - 24 = 2, so z is that of probability 24 / 26 (the paper's example).
    assert attacks.alie_deviations(50, 24) == pytest.approx(1.4261, abs=1e-3)


def test_where_the_paper_has_no_deviation_the_usual_one_is_taken():
    # n = 8, f = 2: s = 3, probability 3 / 6, z = 0: that would be no attack.
    assert attacks.alie_deviations(8, 2) == attacks.FALLBACK_DEVIATIONS


def test_the_search_finds_a_maximum_between_the_factors_of_the_list():
    best = attacks.search_factor(lambda factor: -((factor - 2.3) ** 2), (0.5, 1.0, 2.0, 4.0))
    assert best == pytest.approx(2.3, abs=0.15)


def test_the_search_keeps_the_higher_of_two_maxima():
    def gain(factor: float) -> float:
        return max(1.0 - abs(factor - 1.0), 2.0 - abs(factor - 8.0))

    assert attacks.search_factor(gain, (0.5, 1.0, 4.0, 8.0, 16.0)) == 8.0


def test_the_search_takes_the_smallest_of_factors_without_effect():
    assert attacks.search_factor(lambda _: 0.0, (-2.0, -1.0, 0.5, 3.0)) == pytest.approx(
        0.0, abs=0.5
    )


def test_attacks_leave_the_honest_rows_alone():
    rows = reference("honest")
    before = rows.clone()
    for attack in (attacks.sign_flip, attacks.scaling, lambda r: attacks.mimic(r, 0).mul_(2)):
        attack(rows)
    assert torch.equal(rows, before)
