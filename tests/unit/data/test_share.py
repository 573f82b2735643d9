"""Slots follow from the agreed members; newcomers share the spare one."""

from __future__ import annotations

import pytest

from neuroswarm.data.share import OFFSET_RANGE, Share, share_of
from neuroswarm.values import NodeId

ANNA, BERT, CARL, DORA, EMIL = (NodeId(letter * 20) for letter in (b"a", b"b", b"c", b"d", b"e"))


def test_members_have_a_slot_each_and_one_is_left():
    members = [CARL, ANNA, BERT]
    assert [share_of(7, members, who) for who in (ANNA, BERT, CARL)] == [
        Share(7, slot, 4) for slot in range(3)
    ]
    assert share_of(7, members[::-1], ANNA) == share_of(7, members, ANNA)


def test_newcomers_take_the_spare_slot_at_places_of_their_own():
    shares = [share_of(7, {ANNA, BERT}, who) for who in (DORA, EMIL)]
    assert [(share.slot, share.num_slots) for share in shares] == [(2, 3)] * 2
    assert len({share.offset for share in shares}) == 2
    assert share_of(8, {ANNA, BERT}, DORA).offset != shares[0].offset, "elsewhere in each round"


def test_at_genesis_everyone_has_all_of_it():
    shares = [share_of(0, (), who) for who in (ANNA, BERT)]
    assert [(share.slot, share.num_slots) for share in shares] == [(0, 1)] * 2
    assert len({share.offset for share in shares}) == 2


def test_offsets_are_spread_evenly():
    offsets = [share_of(0, (), NodeId(bytes([i]) * 20)).offset / OFFSET_RANGE for i in range(250)]
    for quarter in range(4):
        within = [o for o in offsets if quarter / 4 <= o < (quarter + 1) / 4]
        assert 35 < len(within) < 95


@pytest.mark.parametrize(
    "values", [(-1, 0, 1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 0, 0, 0), (0, 0, 1, OFFSET_RANGE)]
)
def test_a_share_out_of_range_is_refused(values: tuple[int, int, int, int]):
    with pytest.raises(ValueError, match="needs a round"):
        Share(*values)
