"""What the run on several processors concludes from the nodes' logs."""

from __future__ import annotations

from collections.abc import Sequence

from arch_judge import compare, rows

from neuroswarm.demo.events import Committed, Event, PeerRecord, Published, make_record

NATIVE, PI = "aa" * 20, "bb" * 20


def commit(round_: int, digest: str, contributions: Sequence[str], *, download: bool = False):
    signers = [PI if name.startswith("pi") else NATIVE for name in contributions]
    return Committed(
        time=float(round_), round=round_, digest=digest, is_repair=False, is_download=download,
        contributions=tuple(contributions), signers=tuple(signers), foreign_used=0,
        held_out_loss=None, total_inner_steps=0, num_params=1, bytes_sent=0, step_s=0.0,
    )  # fmt: skip


def node(name: str, published: Sequence[str], *commits: Committed) -> PeerRecord:
    events: list[Event] = [Published(0.0, 0, contribution) for contribution in published]
    return make_record(name, [*events, *commits])


def native(*commits: Committed) -> PeerRecord:
    return node("native", ["n1", "n2", "n3"], *commits)


def pi(*commits: Committed) -> PeerRecord:
    return node("pi", ["pi2", "pi3"], *commits)


def test_rounds_count_that_both_gave_to_and_left_with_the_same_bits():
    agreement = compare(
        native(commit(1, "a", ["n1"]), commit(2, "b", ["n2", "pi2"])),
        pi(commit(1, "a", [], download=True), commit(2, "b", ["n2", "pi2"])),
    )
    assert (agreement.rounds, agreement.is_broken) == ((2,), False)


def test_a_round_without_a_contribution_of_the_other_does_not_count():
    both = [commit(2, "b", ["n2", "pi2"]), commit(3, "c", ["n3"])]
    assert compare(native(*both), pi(*both)).rounds == (2,)


def test_other_bits_after_the_same_contributions_break_the_agreement():
    agreement = compare(
        native(commit(2, "b" * 64, ["n2", "pi2"])), pi(commit(2, "c" * 64, ["n2", "pi2"]))
    )
    assert agreement.is_broken
    assert agreement.differing == (f"round 2: {'b' * 16} and {'c' * 16}",)


def test_other_bits_after_other_sets_say_nothing_of_arithmetic():
    agreement = compare(native(commit(2, "b", ["n2"])), pi(commit(2, "c", ["n2", "pi2"])))
    assert (agreement.rounds, agreement.is_broken) == ((), False)


def test_a_node_that_never_gave_has_no_rounds_in_common():
    both = [commit(2, "b", ["n2"]), commit(3, "c", ["n3"])]
    agreement = compare(native(*both), node("pi", [], *both))
    assert (agreement.rounds, agreement.is_broken) == ((), False)


def test_a_row_names_digests_and_givers():
    both = [commit(2, "b" * 64, ["n2", "pi2"])]
    (row,) = rows([native(*both), pi(*both)], [2])
    digest = "b" * 16
    assert row == f"round 2    native {digest}  pi {digest}  from native, pi"
