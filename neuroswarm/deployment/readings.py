"""Docker's JSON about machines, tasks and the engine's own place in a swarm, as values.

Refuses to ask docker; reads what docker 20.10 to 28.2 printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from neuroswarm.errors import DeployError

T = TypeVar("T")

_NO_ADDRESSES = ("", "0.0.0.0", "::")
"""What some engines say of themselves where they do not know."""


@dataclass(frozen=True, slots=True)
class SwarmState:
    """Where an engine stands in a docker swarm."""

    is_active: bool
    """In one, as a manager or a worker."""
    is_manager: bool
    address: str
    """Its own, as the others reach it; empty if it is in none."""

    @classmethod
    def read(cls, text: str) -> SwarmState:
        """Out of `docker info --format '{{json .Swarm}}'`; DeployError if it is not that."""
        return _understand("docker info", lambda: cls._of(json.loads(text)))

    @classmethod
    def _of(cls, said: Mapping[str, Any]) -> SwarmState:
        is_active = said["LocalNodeState"] not in ("inactive", "")
        return cls(is_active, bool(said["ControlAvailable"]), str(said["NodeAddr"]))


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a docker swarm, as its managers know it."""

    id: str
    hostname: str
    architecture: str
    """As the kernel names it: x86_64, aarch64, armv7l."""
    role: str
    state: str
    """ready, down, unknown or disconnected; with the availability if that is not active."""
    address: str
    """Empty if it is not known."""
    labels: Mapping[str, str]

    @classmethod
    def read_all(cls, text: str) -> list[Machine]:
        """Out of `docker node inspect --format '{{json .}}' ...`, by host name."""
        machines = _understand(
            "docker node inspect", lambda: [cls._of(said) for said in _lines(text)]
        )
        return sorted(machines, key=lambda machine: (machine.hostname, machine.id))

    @classmethod
    def _of(cls, said: Mapping[str, Any]) -> Machine:
        # A machine that has just come has not described itself yet.
        spec, described = said["Spec"], said.get("Description") or {}
        state, availability = said["Status"]["State"], spec["Availability"]
        return cls(
            id=said["ID"],
            hostname=described.get("Hostname") or said["ID"],
            architecture=(described.get("Platform") or {}).get("Architecture", ""),
            role=spec["Role"],
            state=state if availability == "active" else f"{state}, {availability}",
            address=_address(said),
            labels=dict(spec.get("Labels") or {}),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One container of a service, or an attempt at one."""

    service: str
    node: str
    """Host name of its machine; empty if none was found for it."""
    node_id: str
    """Id of its machine, for services that have one task a machine; else empty."""
    state: str
    """What it does and since when, as docker writes it: `Running 5 minutes ago`."""
    is_wanted: bool
    """Whether it is to run; earlier attempts are not."""
    image: str
    error: str

    @classmethod
    def read_all(cls, text: str) -> list[Task]:
        """Out of `docker service ps --no-trunc --format '{{json .}}' ...`; the newest first."""
        return _understand("docker service ps", lambda: [cls._of(said) for said in _lines(text)])

    @classmethod
    def _of(cls, said: Mapping[str, Any]) -> Task:
        service, _, slot = str(said["Name"]).strip().rpartition(".")
        return cls(
            service=service.removeprefix("\\_ "),
            node=said["Node"],
            node_id="" if slot.isdecimal() else slot,
            state=said["CurrentState"],
            is_wanted=said["DesiredState"] in ("Running", "Ready"),
            image=said["Image"],
            error=str(said["Error"]).strip('"'),
        )


def _address(said: Mapping[str, Any]) -> str:
    address = str(said["Status"].get("Addr", ""))
    if address in _NO_ADDRESSES and said.get("ManagerStatus"):
        address = str(said["ManagerStatus"].get("Addr", "")).rpartition(":")[0].strip("[]")
    return "" if address in _NO_ADDRESSES else address


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _understand(command: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeployError(
            f"cannot understand what `{command}` printed: {type(error).__name__}: {error} "
            "(is this client older than docker 20.10?)"
        ) from error
