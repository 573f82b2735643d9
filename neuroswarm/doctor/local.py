"""Looks at this machine and lets it be judged; asks nobody else.

Refuses to judge by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.discovery.announce import route_to, warn_of_deafness
from neuroswarm.doctor import judge_data, judge_memory, judge_network, judge_processor
from neuroswarm.doctor.finding import Finding
from neuroswarm.doctor.judge_clock import judge_clock
from neuroswarm.doctor.judge_network import PortFacts
from neuroswarm.doctor.torch_probe import TorchFacts, probe_torch
from neuroswarm.hardware.capacity import read_capacity
from neuroswarm.hardware.container import read_container
from neuroswarm.hardware.device_class import Accelerator
from neuroswarm.hardware.disk import read_disk
from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.interfaces import read_interfaces
from neuroswarm.hardware.timekeeping import read_timekeeping

_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses of no machine (RFC 5737, 3849): only the route to them is looked up."""


@dataclass(frozen=True, slots=True)
class Patient:
    """What a node would be started with."""

    settings: Mapping[str, Any]
    """All settings, as JSON values."""
    state_dir: Path
    ports: PortFacts
    announce: str | None = None
    fingerprint: str | None = None
    """Of the swarm's token; None without one."""
    tries_torch: bool = True
    """Whether torch is tried, which takes seconds to minutes."""


@dataclass(frozen=True, slots=True)
class TimeTold:
    """What others say of the time."""

    offset_s: float | None = None
    """How far their clocks are before this one, seconds; None if nobody answered."""
    witness: str = ""


def examine_machine(
    patient: Patient, *, clock: Clock, told: TimeTold | None = None, root: Path = ROOT
) -> Iterator[Finding]:
    """Look at one thing after the other; each finding comes as soon as it is known.

    Args:
        patient: What a node would be started with.
        clock: Tells the time.
        told: What others say of the time; None if nobody was asked.
        root: What stands for `/` for the kernel's files.
    """
    capacity = read_capacity(root=root)
    processor, now = capacity.processor, capacity.machine
    if processor.has_nvidia:
        capacity = read_capacity(accelerator=Accelerator.CUDA, root=root)
    container = read_container(root)
    yield judge_processor.judge_processor(processor, capacity.device_class)
    torch: TorchFacts | None = probe_torch(patient.settings) if patient.tries_torch else None
    yield judge_processor.judge_torch(torch, processor, why_not="not tried (--quick)")
    yield judge_memory.judge_memory(
        capacity.memory,
        torch,
        stall=now.memory_stall,
        is_container=container.is_container,
        is_pi=processor.board.startswith("Raspberry Pi"),
    )
    yield judge_processor.judge_power(now, processor)
    time = told or TimeTold()
    yield judge_clock(
        clock.wall(),
        read_timekeeping(root),
        offset_s=time.offset_s,
        witness=time.witness,
        is_container=container.is_container,
    )
    disk = read_disk(patient.state_dir, root)
    yield judge_memory.judge_disk(disk, torch, is_container=container.is_container)
    yield _judge_data(patient.settings)
    route, interfaces = find_route(), read_interfaces(root)
    yield judge_network.judge_network(
        interfaces, route, patient.announce, _warn_of_deafness(patient)
    )
    yield judge_network.judge_container(container, interfaces, route, patient.announce)
    yield judge_network.judge_ports(patient.ports)
    yield judge_network.judge_token(patient.fingerprint)


def _judge_data(settings: Mapping[str, Any]) -> Finding:
    data, path = settings["data"], settings["data"]["path"]
    place = None if path is None else Path(path)
    facts = judge_data.read_data(place, data["max_bytes"], may_fetch=data["fetch"])
    return judge_data.judge_data(facts, 2 * (settings["training"]["context"] + 1))


def _warn_of_deafness(patient: Patient) -> str:
    network = patient.settings["network"]
    return warn_of_deafness(network["host"], network["announce_host"])


def find_route() -> str | None:
    """This machine's address on the route to other networks; None without one. Sends nothing."""
    return next((host for host in map(route_to, _ELSEWHERE) if host is not None), None)
