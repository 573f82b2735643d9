"""Who steps back of two nodes with one key."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.membership.presence import Finding, Presence
from neuroswarm.wire.heartbeats import Heartbeat

RECORD = Heartbeat(b"s" * 32, 5, 0.0, "10.0.0.7", 8101, 9999, 7101, 1, is_training=True)


def make(*names: str) -> Presence:
    drawn = iter([name.encode().ljust(8) for name in names])
    return Presence(lambda: next(drawn))


def said_by(other: Presence, sequence: int = 5) -> Heartbeat:
    return replace(
        RECORD,
        sequence=sequence,
        instance=other.instance,
        twin=other.twin,
        is_settled=other.is_settled,
    )


def test_records_of_this_life_are_its_own():
    me = make("a")
    assert me.judge(said_by(me), newest_sequence=5) is Finding.OURS
    assert me.twin == b""


def test_a_record_of_an_earlier_life_stops_nobody_however_often_it_comes():
    earlier, me = make("a"), make("b")
    earlier.judge(replace(RECORD, instance=b"whoever!"), 0)
    for _ in range(3):
        assert me.judge(said_by(earlier), 0) is Finding.CLAIM
    assert me.judge(replace(RECORD, instance=b""), 0) is Finding.CLAIM
    assert not me.is_lost


def test_a_copy_of_the_memory_is_noticed_by_its_sequence_and_both_take_other_names():
    me, copy = make("a", "b"), make("a", "c")
    assert me.judge(said_by(copy, sequence=9), newest_sequence=5) is Finding.CLAIM
    assert (me.instance, me.twin) == (b"b".ljust(8), b"a".ljust(8))
    finding = copy.judge(said_by(me, sequence=10), newest_sequence=9)
    assert finding is Finding.LOST  # named by what can only have been said now; b is greater


@given(st.data())
def test_of_two_that_live_never_both_step_back_and_one_does(data: st.DataObject):
    """Whatever is settled when, renewed, and in whichever order records arrive, late ones too."""
    names = count()
    a, b = (
        Presence(lambda: data.draw(st.binary(min_size=4, max_size=4)) + _name(names)) for _ in "ab"
    )
    sent: list[tuple[Presence, Heartbeat]] = []

    def act(what: str, who: Presence) -> None:
        other = b if who is a else a
        if what == "settle" and not who.is_lost:
            who.settle()
        elif what == "say" and not who.is_lost:
            sent.append((other, said_by(who)))
        elif what == "hear" and sent and not who.is_lost:
            mine = [record for to, record in sent if to is who]
            if mine:
                who.judge(data.draw(st.sampled_from(mine)), 100)

    steps = st.tuples(st.sampled_from(["settle", "say", "hear"]), st.sampled_from([a, b]))
    for what, who in data.draw(st.lists(steps, max_size=30)):
        act(what, who)
        assert not (a.is_lost and b.is_lost)
    for _ in range(3):
        for who, other in ((a, b), (b, a)):
            if not (a.is_lost or b.is_lost):
                who.judge(said_by(other), 100)
    assert a.is_lost != b.is_lost


def _name(names: count[int]) -> bytes:
    return next(names).to_bytes(4, "big")
