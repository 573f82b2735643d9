from pathlib import Path

import pytest

from neuroswarm.hardware.facts import MachineFacts, read_facts


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MEMORY = "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   2000 kB\n"
PRESSURE = (
    "some avg10=9.00 avg60=1.00 avg300=0.00 total=1\n"
    "full avg10=2.50 avg60=1.00 avg300=0.00 total=1\n"
)
BATTERY = "sys/class/power_supply/BAT0"
ZONE = "sys/class/thermal/thermal_zone0"
THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"


def battery(percent: str, status: str, kind: str = "Battery") -> dict[str, str]:
    return {
        f"{BATTERY}/type": f"{kind}\n",
        f"{BATTERY}/capacity": f"{percent}\n",
        f"{BATTERY}/status": f"{status}\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MachineFacts()),
        ({"proc/meminfo": MEMORY}, MachineFacts(available_memory=2000 / 8000)),
        ({"proc/meminfo": "MemTotal: 8000 kB\n"}, MachineFacts()),
        ({"proc/meminfo": "MemTotal: 0 kB\nMemAvailable: 0 kB\n"}, MachineFacts()),
        ({"proc/meminfo": "nonsense"}, MachineFacts()),
        ({"proc/pressure/memory": PRESSURE}, MachineFacts(memory_stall=0.025)),
        ({"proc/pressure/memory": "full avg10=x\n"}, MachineFacts()),
        (battery("42", "Discharging"), MachineFacts(battery=0.42, is_discharging=True)),
        (battery("42", "Charging"), MachineFacts(battery=0.42)),
        (battery("42", "Discharging", "Mains"), MachineFacts()),
        ({**battery("4", "Discharging"), f"{BATTERY}/scope": "Device\n"}, MachineFacts()),
        (battery("unknown", "Discharging"), MachineFacts()),
        (
            {
                f"{ZONE}/temp": "75000\n",
                f"{ZONE}/trip_point_0_type": "active\n",
                f"{ZONE}/trip_point_0_temp": "50000\n",
                f"{ZONE}/trip_point_1_type": "passive\n",
                f"{ZONE}/trip_point_1_temp": "80000\n",
                f"{ZONE}/trip_point_2_type": "critical\n",
                f"{ZONE}/trip_point_2_temp": "110000\n",
            },
            MachineFacts(heat_margin_c=5.0),
        ),
        ({f"{ZONE}/temp": "75000\n"}, MachineFacts()),
        ({THROTTLED: "50000\n"}, MachineFacts()),
        ({THROTTLED: "50008\n"}, MachineFacts(is_throttled=True)),
        ({THROTTLED: "4\n"}, MachineFacts(is_throttled=True)),
        ({THROTTLED: "what\n"}, MachineFacts()),
    ],
)
def test_facts_are_read_and_what_is_missing_is_absent(
    tmp_path: Path, files: dict[str, str], expected: MachineFacts
):
    write(tmp_path, files)
    assert read_facts(tmp_path) == expected


def test_this_machine_can_be_read():
    facts = read_facts()
    assert facts.available_memory is None or 0 < facts.available_memory <= 1
