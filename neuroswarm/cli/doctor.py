"""`neuroswarm doctor`: what keeps a node from training here or being reached, and the fix."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli import node_options as options
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.node import read_layers
from neuroswarm.cli.ports import PortClaims, PortProbe, PortWishes, plan_ports

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings
    from neuroswarm.doctor.finding import Finding
    from neuroswarm.doctor.judge_network import PortFacts
    from neuroswarm.doctor.local import Patient


def doctor(
    context: typer.Context,
    *,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    heartbeat_port: options.HeartbeatPort = None,
    host: options.Host = None,
    announce: options.Announce = None,
    name: options.Name = None,
    state_dir: options.StateDir = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out torch, which takes seconds to minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Look what would keep a node from training here, or from being reached; say the fix.

    Takes the flags, variables and file that the node gets. The exit code is 70 if a node would not
    run or not find the others, else 0. docs/doctor.md explains every line.
    """
    from neuroswarm.clock import SystemClock
    from neuroswarm.doctor.local import examine_machine

    patient = describe_patient(context.params, os.environ)
    findings = []
    for finding in examine_machine(patient, clock=SystemClock()):
        findings.append(finding)
        if not as_json:
            typer.echo(str(finding))
    return conclude(findings, as_json=as_json)


def describe_patient(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> Patient:
    """What a node would be started with.

    Args:
        parameters: Values of the command's flags by name; None or False if not given.
        environment: Process environment.

    Raises:
        ConfigError: a setting is unknown or not legal.
    """
    from neuroswarm.cli import settings as merging
    from neuroswarm.config.swarm_node import DEFAULT_STATE_DIR
    from neuroswarm.doctor.local import Patient

    merged = merging.resolve(read_layers(parameters, environment))
    settings = merged.config
    return Patient(
        settings=settings.model_dump(mode="json"),
        state_dir=settings.state_dir or DEFAULT_STATE_DIR / settings.network.name,
        ports=_read_ports(merged),
        announce=settings.network.announce_host,
        tries_torch=not parameters.get("quick"),
    )


def conclude(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print the sum, or everything as JSON; the exit code."""
    from neuroswarm.doctor.finding import Level

    failed = sum(finding.level is Level.FAIL for finding in findings)
    warned = sum(finding.level is Level.WARN for finding in findings)
    if as_json:
        rows = [
            {"check": f.check, "level": f.level.value, "said": f.said, "fix": f.fix}
            for f in findings
        ]
        report = {"is_healthy": not failed, "failed": failed, "warned": warned, "findings": rows}
        typer.echo(json.dumps(report, indent=2))
    elif failed:
        typer.echo(f"{failed} to be fixed, {warned} to be looked at")
    else:
        typer.echo(f"a node will run here; {warned} to be looked at")
    return ExitCode.UNFULFILLED if failed else ExitCode.OK


def _read_ports(merged: Settings) -> PortFacts:
    from neuroswarm.doctor.judge_network import PortFacts
    from neuroswarm.errors import ConfigError

    wishes = PortWishes(
        merged.asked("network.port"),
        merged.asked("network.grpc_port"),
        merged.asked("heartbeat.port"),
    )
    claims = PortClaims()
    try:
        plan = plan_ports(wishes, PortProbe(merged.config.network.host, claims).is_free)
    except ConfigError as error:
        return PortFacts(failure=str(error))
    finally:
        claims.release()
    ports = (("HTTP", plan.http), ("gRPC", plan.grpc), ("heartbeat UDP", plan.heartbeat))
    return PortFacts(ports, plan.remarks)
