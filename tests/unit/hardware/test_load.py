"""What others take of the machine, and where its power is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.hardware.load import (
    LoadMeter,
    ProcessorTime,
    read_on_mains,
    read_processor_time,
    read_resident_bytes,
    read_swapped_bytes,
)


def test_own_work_is_no_load_of_others():
    times = iter(
        [
            ProcessorTime(busy_s=100, all_s=1000, own_s=50),
            ProcessorTime(busy_s=110, all_s=1020, own_s=60),
            ProcessorTime(busy_s=120, all_s=1040, own_s=62),
            ProcessorTime(busy_s=120, all_s=1040, own_s=62),
            ProcessorTime(busy_s=121, all_s=1050, own_s=64),
        ]
    )
    meter = LoadMeter(lambda: next(times))
    assert [meter.others() for _ in range(4)] == [0.0, 0.4, None, 0.0]


def test_this_machine_tells_its_load():
    before = read_processor_time()
    sum(range(1_000_000))
    after = read_processor_time()
    assert after.own_s > before.own_s
    assert after.all_s >= after.busy_s >= after.own_s
    assert read_resident_bytes() > 10_000_000
    assert read_swapped_bytes() >= 0


SUPPLY = "sys/class/power_supply"
BATTERY = {f"{SUPPLY}/BAT0/type": "Battery"}


@pytest.mark.parametrize(
    ("files", "is_on_mains"),
    [
        ({}, None),
        ({f"{SUPPLY}/AC/type": "Mains", f"{SUPPLY}/AC/online": "1"}, True),
        ({f"{SUPPLY}/AC/type": "Mains", f"{SUPPLY}/AC/online": "0"}, False),
        (
            {
                f"{SUPPLY}/AC/type": "Mains",
                f"{SUPPLY}/AC/online": "0",
                f"{SUPPLY}/usbc/type": "USB",
                f"{SUPPLY}/usbc/online": "1",
            },
            True,
        ),
        (BATTERY | {f"{SUPPLY}/BAT0/status": "Discharging"}, False),
        (BATTERY | {f"{SUPPLY}/BAT0/status": "Full"}, True),
        (
            {
                f"{SUPPLY}/mouse/type": "Battery",
                f"{SUPPLY}/mouse/scope": "Device",
                f"{SUPPLY}/mouse/status": "Discharging",
            },
            None,
        ),
    ],
)
def test_where_power_is_from(tmp_path: Path, files: dict[str, str], is_on_mains: bool | None):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert read_on_mains(tmp_path) is is_on_mains
