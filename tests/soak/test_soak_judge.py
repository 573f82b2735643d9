"""What the soak run concludes from the nodes' logs."""

from __future__ import annotations

from soak_judge import (
    HEAL_ROUNDS,
    MAX_DIFFERING,
    Step,
    Track,
    compare_losses,
    count_apart,
    fit_slope,
    is_one_lineage,
    share_equal_at_once,
)

MET_AT = 100.0


def step(
    round_: int, digest: str, at: float = 0.0, *, repair: bool = False, download: bool = False
):
    return Step(at, round_, digest, repair, download, None)


def track(*digests: str, first: int = 0, began: float = MET_AT) -> Track:
    """One that finished a round a second."""
    made = Track()
    for index, digest in enumerate(digests):
        made.add(step(first + index, digest, began + index))
    return made


def test_peers_with_one_lineage_are_never_apart():
    assert count_apart(track("a", "b", "c"), track("a", "b", "c", "d"), MET_AT) == (
        0,
        MAX_DIFFERING,
    )


def test_rounds_with_different_digests_are_counted_from_the_last_equal_one():
    one, two = track("a", "b", "x", "y", "z"), track("a", "b", "p", "q", "r", "s")
    assert count_apart(one, two, MET_AT) == (3, MAX_DIFFERING)


def test_peers_that_were_apart_get_rounds_to_heal_and_old_rounds_do_not_count():
    one, two = track("a", "u", "v", "w", "x"), track("a", "p", "q", "r", "s")
    met_at = MET_AT + 2.5
    assert count_apart(one, two, met_at) == (2, MAX_DIFFERING + HEAL_ROUNDS)


def test_peers_at_different_rounds_without_a_digest_in_common_are_apart():
    one, two = track("a", "b", "c"), track("x", "y", "z", first=50)
    assert count_apart(one, two, MET_AT) == (3, MAX_DIFFERING + HEAL_ROUNDS)


def test_a_repair_replaces_the_rounds_after_the_fork():
    moved = track("a", "b", "x", "y")
    moved.add(step(2, "c", 200, repair=True))
    moved.add(step(3, "d", 200))
    assert {r: digest for r, (digest, _) in moved.held.items()} == {0: "a", 1: "b", 2: "c", 3: "d"}


def test_a_download_leaves_nothing_of_the_former_lineage():
    moved = track("a", "b", "x", "y")
    moved.add(step(9, "k", 200, repair=True, download=True))
    assert moved.tip == 9
    assert len(moved.held) == 1


def test_one_lineage_needs_a_common_digest_reached_since_then():
    one, two = track("a", "b", "c"), track("a", "b", "c", "d")
    assert is_one_lineage([one, two], MET_AT)
    assert not is_one_lineage([one, two], MET_AT + 2.5), "nothing common is that new"
    assert not is_one_lineage([one, track("a", "b", "x")], MET_AT + 1.5)
    assert not is_one_lineage([one, track("a", "b", *"cdefgh")], MET_AT), "too far behind"


def test_share_of_rounds_equal_at_once_counts_first_digests():
    own = [step(1, "a"), step(2, "x"), step(2, "b", repair=True), step(3, "c")]
    others = [step(1, "a"), step(2, "b"), step(9, "k", download=True)]
    assert share_equal_at_once({"one": own, "two": others}) == (0.5, 2)
    assert share_equal_at_once({"one": own, "two": others}, {1: True}) == (1.0, 1)


def test_a_slope_is_fitted_after_the_warm_up():
    samples = [(float(t), 100.0 + max(0, t - 600) * 36 / 3600) for t in range(0, 3601, 5)]
    slope = fit_slope("one", 0, samples, warm_up_s=600, least_s=1200)
    assert slope is not None
    assert abs(slope.mb_per_hour - 36) < 1e-6
    assert slope.is_too_steep


def test_a_short_life_is_not_judged():
    samples = [(float(t), 100.0 + t) for t in range(0, 900, 5)]
    slope = fit_slope("one", 0, samples, warm_up_s=300, least_s=1200)
    assert slope is not None
    assert not slope.is_too_steep
    assert fit_slope("one", 0, samples[:3], warm_up_s=300, least_s=0) is None


def test_losses_are_means_of_the_first_and_last_tenth():
    losses = [(float(t), 10.0 - t / 10) for t in range(101)]
    assert compare_losses(losses, 0, 100) == (9.5, 0.5)
    assert compare_losses(losses[20:], 0, 100) is None
