"""Which class of machine this is, as a function of what was read of it.

The class decides how large the first batches are, and tells people what they look at; how fast
the machine really is gets measured. Refuses to look at the machine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from neuroswarm.hardware.processor import ProcessorFacts

GIB = 1024**3


class DeviceClass(enum.Enum):
    """Classes in order of what they can do (REQUIREMENTS S5)."""

    RPI = "rpi"
    LAPTOP = "laptop"
    DESKTOP = "desktop"
    SERVER = "server"


NUMBERS: Mapping[DeviceClass | None, int] = {c: k for k, c in enumerate(DeviceClass, start=1)}
"""Of the classes on the wire, as in `neuroswarm.v1.DeviceClass`; 0 is none."""
OF_NUMBER: Mapping[int, DeviceClass] = dict(enumerate(DeviceClass, start=1))

START_WINDOWS: Mapping[DeviceClass, int] = {
    DeviceClass.SERVER: 128,
    DeviceClass.DESKTOP: 64,
    DeviceClass.LAPTOP: 32,
    DeviceClass.RPI: 8,
}
"""Windows of an inner step before anything is measured."""


class Accelerator(enum.Enum):
    """What torch can train on besides the processor."""

    NONE = "none"
    CUDA = "cuda"
    MPS = "mps"


class Chassis(enum.Enum):
    """What the machine is built as, by its firmware."""

    UNKNOWN = "unknown"
    PORTABLE = "portable"
    DESKTOP = "desktop"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """What the class follows from."""

    processor: ProcessorFacts
    memory_bytes: int | None = None
    """Memory that this process may have in all; None if it is not known."""
    accelerator: Accelerator = Accelerator.NONE
    has_battery: bool = False
    chassis: Chassis = Chassis.UNKNOWN


_LEAST: tuple[tuple[DeviceClass, int, int], ...] = (
    (DeviceClass.SERVER, 8, 12 * GIB),
    (DeviceClass.DESKTOP, 4, 6 * GIB),
    (DeviceClass.LAPTOP, 2, 3 * GIB // 2),
)
"""Cores and memory from which on a machine can be of a class. Machines are sold with a little less
memory than a power of two, so the bounds lie below 16, 8 and 2 GiB."""

_ARM = ("aarch64", "arm64", "armv7l", "armv6l")
_ORDER = tuple(DeviceClass)


def classify(facts: ClassFacts) -> DeviceClass:
    """The class: what it is built as, but no more than its cores and memory can do.

    A container of one core on a server is no server to the swarm. What is built as nothing known
    (a virtual machine) is what its cores and memory can do. An accelerator counts for one class.
    """
    built = _built_as(facts)
    able = _able_to(facts)
    found = able if built is None else min(built, able, key=_ORDER.index)
    if facts.accelerator is not Accelerator.NONE:
        found = _ORDER[min(_ORDER.index(found) + 1, len(_ORDER) - 1)]
    return found


def _built_as(facts: ClassFacts) -> DeviceClass | None:
    processor = facts.processor
    is_small_board = processor.architecture in _ARM and bool(processor.board)
    if is_small_board or processor.board.startswith("Raspberry Pi"):
        return DeviceClass.RPI
    if facts.has_battery or facts.chassis is Chassis.PORTABLE:
        return DeviceClass.LAPTOP
    if facts.chassis is Chassis.DESKTOP:
        return DeviceClass.DESKTOP
    return DeviceClass.SERVER if facts.chassis is Chassis.SERVER else None


def _able_to(facts: ClassFacts) -> DeviceClass:
    cores, memory = facts.processor.num_cores, facts.memory_bytes
    for device_class, least_cores, least_bytes in _LEAST:
        if cores >= least_cores and (memory is None or memory >= least_bytes):
            return device_class
    return DeviceClass.RPI
