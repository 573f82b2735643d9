"""Which piece is fetched from whom next, and which donors are asked."""

from __future__ import annotations

import pytest

from neuroswarm.membership.door import Door
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.speaker import Speaker
from neuroswarm.transfer.donor_pool import (
    BURST,
    MAX_REST_S,
    NUM_DONORS,
    PIECES_PER_DONOR,
    REQUESTS_PER_S,
    DonorPool,
)
from neuroswarm.transfer.piece_plan import PiecePlan
from neuroswarm.transport import Admission
from neuroswarm.values import NodeId

ANNA, BERT = Speaker("anna").node_id, Speaker("bert").node_id
SIZE = 1000


def take(plan: PiecePlan, donor: NodeId, now: float = 0.0, rate: float | None = None) -> int | None:
    piece = plan.take(donor, rate, now)
    return None if piece is None else piece.index


def test_missing_pieces_are_taken_in_order_and_once():
    plan = PiecePlan([SIZE] * 5, done=[1, 3])
    assert plan.bytes_done == 2 * SIZE
    assert [take(plan, ANNA), take(plan, BERT), take(plan, ANNA), take(plan, ANNA)] == [
        0, 2, 4, None,
    ]  # fmt: skip


def test_a_plan_is_complete_once_every_piece_is_there():
    plan = PiecePlan([SIZE] * 2, done=[0])
    piece = plan.take(ANNA, None, 0.0)
    assert piece is not None
    assert not plan.is_complete
    plan.finish(piece)
    assert plan.is_complete
    assert plan.bytes_done == 2 * SIZE
    assert PiecePlan([], ()).is_complete


def test_what_a_donor_left_unfinished_goes_on_where_it_was():
    plan = PiecePlan([SIZE] * 2)
    piece = plan.take(ANNA, None, 0.0)
    assert piece is not None
    piece.received += bytes(400)
    plan.release(piece)
    again = plan.take(BERT, None, 1.0)
    assert again is piece
    assert (again.bringer, again.num_left, again.began_with) == (BERT, 600, 400)


def test_a_piece_that_two_donors_spoiled_is_fetched_whole_from_one():
    plan = PiecePlan([SIZE])
    piece = plan.take(ANNA, None, 0.0)
    assert piece is not None
    piece.received += bytes(SIZE)
    piece.sources |= {ANNA, BERT}
    plan.discard(piece)
    for _ in range(2):
        assert plan.take(BERT, None, 1.0) is piece
        assert not piece.received
        piece.received += bytes(10)
        plan.release(piece)


@pytest.mark.parametrize(
    ("received", "rate", "is_taken"),
    [(10, 1000.0, True), (10, None, False), (10, 15.0, False), (990, 1000.0, False)],
    ids=["much slower", "pace not known", "hardly slower", "nearly there"],
)
def test_the_last_piece_is_taken_from_a_much_slower_donor(
    received: int, rate: float | None, is_taken: bool
):
    plan = PiecePlan([SIZE])
    piece = plan.take(ANNA, None, 0.0)
    assert piece is not None
    interrupted: list[bool] = []
    piece.interrupt = lambda: interrupted.append(True)
    piece.received += bytes(received)
    turn = piece.turn
    assert plan.take(BERT, rate, 0.1) is None  # too early to say
    assert (plan.take(BERT, rate, 1.0) is piece) == is_taken
    assert bool(interrupted) == is_taken == (piece.turn > turn)


def test_a_piece_changes_hands_at_the_end_at_most_once():
    plan = PiecePlan([SIZE])
    assert take(plan, ANNA) == 0
    assert take(plan, BERT, now=10.0, rate=1000.0) == 0
    assert take(plan, ANNA, now=20.0, rate=1000.0) is None


def test_nobody_takes_a_piece_from_itself_or_while_it_is_checked():
    plan = PiecePlan([SIZE])
    piece = plan.take(ANNA, None, 0.0)
    assert piece is not None
    assert plan.take(ANNA, 1000.0, 10.0) is None
    plan.check(piece)
    assert plan.take(BERT, 1000.0, 10.0) is None


# -- donors --------------------------------------------------------------------------


def make_pool(count: int) -> DonorPool:
    addresses = [Speaker(f"donor {k}").address for k in range(count)]
    return DonorPool(lambda: addresses, seed=0)


def work_all(pool: DonorPool, now: float = 0.0) -> list[int]:
    """Give out work while somebody has room; pieces under way by donor, sorted."""
    while donors := pool.pick(now):
        donors[0].num_under_way += 1
    return sorted(donor.num_under_way for donor in pool.donors)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_work_is_spread_over_few_donors(count: int):
    pool = make_pool(count)
    busy = [n for n in work_all(pool) if n]
    assert busy == [PIECES_PER_DONOR] * min(count, NUM_DONORS)


def test_every_donor_gets_a_piece_before_one_gets_two():
    pool = make_pool(3)
    for _ in range(3):
        pool.pick(0.0)[0].num_under_way += 1
    assert [donor.num_under_way for donor in pool.chosen] == [1, 1, 1]


def test_a_donor_that_fails_rests_longer_each_time_and_another_comes_in():
    pool = make_pool(4)
    donor = pool.pick(0.0)[0]
    rests, now = [], 0.0
    for _ in range(9):
        pool.failed(donor, now)
        assert donor not in pool.pick(now)
        rests.append(donor.rests_until - now)
        now = donor.rests_until
    assert rests == sorted(rests)
    assert rests[0] < 5
    assert rests[-1] == MAX_REST_S
    assert len(pool.chosen) == NUM_DONORS


def test_a_download_is_hopeless_once_every_candidate_is_out():
    pool = make_pool(2)
    assert not pool.is_hopeless
    first, second = pool.pick(0.0)[0], None
    pool.drop(first)
    assert not pool.is_hopeless
    second = next(donor for donor in pool.pick(0.0) if donor is not first)
    pool.was_busy(second, 0.0)
    assert not pool.is_hopeless
    pool.drop(second)
    assert pool.is_hopeless
    assert not DonorPool(list, seed=0).is_hopeless


def test_a_peer_that_is_gone_is_asked_no_more():
    addresses = [Speaker("anna").address, Speaker("bert").address]
    pool = DonorPool(lambda: addresses, seed=0)
    pool.pick(0.0)
    pool.pick(0.0)
    del addresses[0]
    assert [donor.node_id for donor in pool.pick(1.0)] == [BERT]


def test_a_donor_is_asked_more_slowly_than_a_flood():
    pool, now, asked = make_pool(1), 100.0, []
    while now < 130.0:
        for donor in pool.pick(now):
            pool.asked(donor, now)
            asked.append(now)
        now += 0.001
    assert len(asked) == pytest.approx(BURST + 30 * REQUESTS_PER_S, abs=2)
    door = Door(PeerTable(ANNA, 5.0))
    assert all(door.admit(BERT, 50, at) is Admission.WELCOME for at in asked)
