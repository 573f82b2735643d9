import pytest

from neuroswarm.bench.memory_measures import Sample, check, measure

N = 1_000_000
BASE = 400_000_000


def samples(*seen: tuple[int, int, float]) -> list[Sample]:
    return [Sample(node, finished, BASE + round(each * N)) for node, finished, each in seen]


def test_rest_and_peak_are_those_of_the_larger_node_after_the_warm_up():
    seen = samples(
        (0, 0, 60.0), (0, 1, 70.0),
        (0, 2, 30.0), (0, 2, 31.0), (0, 3, 44.0),
        (1, 2, 32.0), (1, 2, 32.0), (1, 3, 40.0),
    )  # fmt: skip
    found = measure(seen, N, BASE)
    assert (found.rest, found.peak, found.start) == (32.0, 44.0, 70.0)
    assert found.peak_ratio == pytest.approx(44 / 24)
    assert found.to_json()["rest_ratio"] == 1.33
    assert found.to_json()["base_mb"] == 400.0


@pytest.mark.parametrize(("peak", "holds"), [(48.0, True), (48.1, False)])
def test_what_is_promised_is_the_peak(peak: float, holds: bool):
    (promise,) = check(measure(samples((0, 2, peak)), N, BASE))
    assert promise.holds is holds
    assert f"{peak:.1f} bytes a parameter" in promise.said


def test_without_a_round_after_the_warm_up_there_is_nothing_to_say():
    with pytest.raises(ValueError, match="nothing was seen after 2 rounds"):
        measure(samples((0, 1, 30.0)), N, BASE)
