import pytest

from neuroswarm.diloco import applied
from neuroswarm.errors import SchemaMismatch
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

ALICE, BOB = NodeId(b"a" * 20), NodeId(b"b" * 20)


def some_id(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_what_was_agreed_is_found_for_sixteen_rounds_and_then_forgotten():
    table = applied.add({}, 0, [(ALICE, some_id(1))])
    for round_ in range(1, 16):
        table = applied.add(table, round_, [(BOB, some_id(100 + round_))])
        assert applied.contains(table, ALICE, some_id(1))
    assert applied.identities(table, 16) == {ALICE, BOB}
    table = applied.add(table, 16, [(BOB, some_id(200))])
    assert not applied.contains(table, ALICE, some_id(1))
    assert set(table) == {BOB}


def test_identities_forget_by_round_even_if_empty_rounds_left_the_table_alone():
    table = applied.add({}, 3, [(ALICE, some_id(1))])
    assert applied.identities(table, 3 + 16) == {ALICE}
    assert applied.identities(table, 3 + 17) == frozenset()


def test_a_contribution_counts_for_its_own_node_only():
    table = applied.add({}, 0, [(ALICE, some_id(1))])
    assert not applied.contains(table, BOB, some_id(1))
    assert not applied.contains(table, ALICE, some_id(2))


def test_adding_leaves_the_old_table_alone():
    table = applied.add({}, 0, [(ALICE, some_id(1))])
    applied.add(table, 1, [(ALICE, some_id(2))])
    assert table == {ALICE: ((0, some_id(1)),)}


def test_bytes_do_not_depend_on_the_order_of_insertion():
    there = applied.add({}, 0, [(ALICE, some_id(1)), (BOB, some_id(2))])
    back = applied.add({}, 0, [(BOB, some_id(2)), (ALICE, some_id(1))])
    assert applied.to_bytes(there) == applied.to_bytes(back)
    assert len(applied.to_bytes(there)) == 2 * 60


def test_a_table_comes_back_from_its_entries():
    table = applied.add(applied.add({}, 0, [(BOB, some_id(9))]), 1, [(ALICE, some_id(3))])
    assert applied.from_entries(applied.entries(table)) == table


@pytest.mark.parametrize(
    "entry", [(ALICE, -1, some_id(1)), (ALICE, 2**60, some_id(1)), (ALICE, 1, b"short")]
)
def test_malformed_entries_are_refused(entry: tuple[NodeId, int, bytes]):
    with pytest.raises(SchemaMismatch, match="malformed"):
        applied.from_entries([entry])


def test_too_many_entries_are_refused():
    flood = ((ALICE, 1, some_id(i)) for i in range(limits.MAX_APPLIED + 1))
    with pytest.raises(SchemaMismatch, match="over"):
        applied.from_entries(flood)
