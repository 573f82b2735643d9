"""Recorded machines and their classes."""

from pathlib import Path

import pytest

from neuroswarm.hardware.capacity import MIB, choose_budget, read_capacity
from neuroswarm.hardware.device_class import (
    GIB,
    START_WINDOWS,
    Accelerator,
    Chassis,
    ClassFacts,
    DeviceClass,
    classify,
)
from neuroswarm.hardware.memory import MemoryFacts
from neuroswarm.hardware.processor import ProcessorFacts


def x86(cores: int, usable: int | None = None, quota: float | None = None) -> ProcessorFacts:
    return ProcessorFacts(
        architecture="x86_64", num_physical=cores, num_usable=usable or 2 * cores, quota=quota
    )


PI4 = ProcessorFacts(
    architecture="aarch64", num_usable=4, num_physical=4, board="Raspberry Pi 4 Model B Rev 1.4"
)
RECORDED = {
    "raspberry pi 4, 8 GB": (ClassFacts(PI4, 8_014_000_000), DeviceClass.RPI),
    "other small board": (
        ClassFacts(
            ProcessorFacts(architecture="aarch64", num_usable=8, board="Radxa ROCK 5B"), 16 * GIB
        ),
        DeviceClass.RPI,
    ),
    "thinkpad, 2 cores, 8 GB": (
        ClassFacts(x86(2), 7_900_000_000, has_battery=True, chassis=Chassis.PORTABLE),
        DeviceClass.LAPTOP,
    ),
    "gaming laptop, 8 cores, 32 GB": (
        ClassFacts(x86(8), 32 * GIB, has_battery=True), DeviceClass.LAPTOP,
    ),
    "the same with CUDA": (
        ClassFacts(x86(8), 32 * GIB, accelerator=Accelerator.CUDA, has_battery=True),
        DeviceClass.DESKTOP,
    ),
    "old netbook, 1 core": (ClassFacts(x86(1, 2), 2 * GIB, has_battery=True), DeviceClass.RPI),
    "i5-3470, 4 cores, 8 GB": (
        ClassFacts(x86(4, 4), 8_200_000_000, chassis=Chassis.DESKTOP), DeviceClass.DESKTOP,
    ),
    "i3-4130, 2 cores, 4 GB": (
        ClassFacts(x86(2), 4 * GIB, chassis=Chassis.DESKTOP), DeviceClass.LAPTOP,
    ),
    "threadripper in a tower": (
        ClassFacts(x86(32), 128 * GIB, chassis=Chassis.DESKTOP), DeviceClass.DESKTOP,
    ),
    "rack server": (ClassFacts(x86(16), 64 * GIB, chassis=Chassis.SERVER), DeviceClass.SERVER),
    "virtual machine, 2 cores, 24 GB": (ClassFacts(x86(2), 24 * GIB), DeviceClass.LAPTOP),
    "virtual machine, 16 cores": (ClassFacts(x86(16), 64 * GIB), DeviceClass.SERVER),
    "container of 1 core and 1 GiB on a server": (
        ClassFacts(x86(32, quota=1.0), GIB, chassis=Chassis.SERVER), DeviceClass.RPI,
    ),
    "container of 4 cores and 8 GiB on a server": (
        ClassFacts(x86(32, quota=4.0), 8 * GIB, chassis=Chassis.SERVER), DeviceClass.DESKTOP,
    ),
    "macbook with 8 cores": (
        ClassFacts(
            ProcessorFacts(architecture="arm64", num_usable=8, num_physical=8),
            16 * GIB, accelerator=Accelerator.MPS, has_battery=True,
        ),
        DeviceClass.DESKTOP,
    ),
    "memory not told": (ClassFacts(x86(8), None), DeviceClass.SERVER),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), RECORDED.values(), ids=RECORDED)
def test_classes_of_recorded_machines(facts: ClassFacts, expected: DeviceClass):
    assert classify(facts) is expected


def test_first_batches_are_those_of_the_classes():
    by_name = {device_class.value: START_WINDOWS[device_class] for device_class in DeviceClass}
    assert by_name == {"server": 128, "desktop": 64, "laptop": 32, "rpi": 8}


@pytest.mark.parametrize(
    ("memory", "limit_mb", "budget"),
    [
        (MemoryFacts(), None, None),
        (MemoryFacts(), 10, 10 * MIB),
        (MemoryFacts(available=5 * MIB), 10, 5 * MIB),
        (MemoryFacts(available=50 * MIB, group_limit=40 * MIB, group_used=10 * MIB), 100, 30 * MIB),
        (MemoryFacts(available=50 * MIB), 10, 10 * MIB),
    ],
)
def test_the_budget_is_the_least_of_three(
    memory: MemoryFacts, limit_mb: int | None, budget: int | None
):
    assert choose_budget(memory, limit_mb) == budget


def test_a_machine_is_read_from_its_files(tmp_path: Path):
    files = {
        "proc/cpuinfo": "processor : 0\nmodel name : Some CPU\nflags : avx2 avx512_bf16\n",
        "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n",
        "proc/self/cgroup": "0::/box\n",
        "sys/fs/cgroup/box/cpu.max": "100000 100000\n",
        "sys/fs/cgroup/box/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/box/memory.current": f"{GIB // 4}\n",
        "sys/class/dmi/id/chassis_type": "23\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    capacity = read_capacity(root=tmp_path)
    assert capacity.processor.num_cores == 1
    assert capacity.processor.has_bf16
    assert capacity.budget_bytes == GIB * 3 // 4
    assert capacity.device_class is DeviceClass.RPI
    assert capacity.start_windows == 8
    assert read_capacity(limit_mb=100, root=tmp_path).budget_bytes == 100 * MIB


def test_this_machine_can_be_read():
    capacity = read_capacity()
    assert capacity.processor.num_cores >= 1
    assert capacity.start_windows in (8, 32, 64, 128)
