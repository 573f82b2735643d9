"""When a guest works: scripts of a machine's day, and what the node does at each moment."""

from __future__ import annotations

import pytest

from neuroswarm.config.guest import GuestConfig
from neuroswarm.errors import ConfigError
from neuroswarm.training.guest import EASED_S, Conditions, Manners

NOON, NIGHT = Conditions(minute=12 * 60), Conditions(minute=23 * 60)


def play(config: GuestConfig, *script: tuple[float, Conditions]) -> list[str]:
    manners = Manners(config)
    return [manners.decide(now, at) for now, at in script]


def test_without_wishes_it_always_works():
    battery = Conditions(is_on_mains=False, others_load=1.0)
    assert play(GuestConfig(), (0, NOON), (1, battery)) == ["", ""]


def test_it_leaves_the_battery_alone_and_comes_back_once_mains_has_lasted():
    on, off = Conditions(is_on_mains=True), Conditions(is_on_mains=False)
    config = GuestConfig(only_on_mains=True, settle_s=60)
    said = play(config, (0, on), (10, off), (20, on), (50, off), (60, on), (119, on), (120, on))
    rest = "on battery"
    assert said == ["", rest, rest, rest, rest, rest, ""]


def test_a_machine_without_a_battery_is_on_mains():
    assert play(GuestConfig(only_on_mains=True), (0, Conditions(is_on_mains=None))) == [""]


def test_it_makes_room_for_others_at_once_and_waits_until_they_are_gone():
    idle, busy = Conditions(others_load=0.1), Conditions(others_load=0.6)
    config = GuestConfig(only_when_idle=True, settle_s=30)
    said = play(config, (0, idle), (5, busy), (10, idle), (39, idle), (40, idle))
    rest = "the machine is in use"
    assert said == ["", rest, rest, rest, ""]
    assert play(config, (0, Conditions(others_load=None))) == [""]


@pytest.mark.parametrize(
    ("hours", "minute", "is_allowed"),
    [
        ((), 0, True),
        (("22:00-07:00",), 22 * 60, True),
        (("22:00-07:00",), 6 * 60 + 59, True),
        (("22:00-07:00",), 7 * 60, False),
        (("22:00-07:00",), 12 * 60, False),
        (("12:00-13:00", "22:00-07:00"), 12 * 60 + 30, True),
        (("09:30-10:00",), 9 * 60 + 29, False),
        (("00:00-24:00",), 1439, True),
    ],
)
def test_hours_of_the_day(hours: tuple[str, ...], minute: int, is_allowed: bool):
    assert GuestConfig(hours=hours).allows(minute) is is_allowed


def test_hours_end_and_begin_by_the_clock():
    config = GuestConfig(hours="22:00-07:00, 12:30-13:00", settle_s=600)
    said = play(config, (0, NIGHT), (1, NOON), (2, NIGHT))
    assert said == ["", "only at 22:00-07:00, 12:30-13:00", ""]


@pytest.mark.parametrize("text", ["22-07", "25:00-07:00", "07:00-07:00", "22:00", "10:00-24:30"])
def test_hours_that_are_none_are_refused_in_words(text: str):
    with pytest.raises(ConfigError, match=r"guest\.hours"):
        GuestConfig(hours=text)


@pytest.mark.parametrize(
    "at",
    [
        Conditions(memory_stall=0.5),
        Conditions(swapped_bytes_per_s=1e9),
        Conditions(room_share=0.01),
    ],
    ids=["stall", "swap", "no-room"],
)
def test_it_gives_way_where_memory_is_short_whoever_owns_the_machine(at: Conditions):
    enough = Conditions(memory_stall=0.0, room_share=0.5)
    said = play(GuestConfig(), (0, enough), (1, at), (2, enough), (1 + EASED_S, enough),
                (2 + EASED_S, enough))  # fmt: skip
    assert said == ["", *["memory is short"] * 3, ""]
