"""`neuroswarm doctor`: what keeps a node from training here or being reached, and the fix."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli import node_options as options
from neuroswarm.cli.addresses import require_addresses
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.node import read_layers, require_an_end, wish_ports
from neuroswarm.cli.options import (
    AcceptTokenFileOption,
    LogFormatOption,
    LogLevelOption,
    TokenFileOption,
    TokenOption,
)
from neuroswarm.cli.ports import NoPort, PortClaims, PortProbe, plan_ports
from neuroswarm.cli.swarm_token import check_accepted, find_token

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings
    from neuroswarm.clock import Clock
    from neuroswarm.config.swarm_node import SwarmNodeConfig
    from neuroswarm.discovery.hint import Hint
    from neuroswarm.doctor.calling_back import Place
    from neuroswarm.doctor.exploring import Explored
    from neuroswarm.doctor.finding import Finding
    from neuroswarm.doctor.judge_network import PortFacts
    from neuroswarm.doctor.local import Patient
    from neuroswarm.identity.token import SwarmToken

HTTP, GRPC, HEARTBEAT = "HTTP", "gRPC", "heartbeat UDP"
"""Names of the ports, as the line on ports has them."""


def doctor(
    context: typer.Context,
    *,
    tracker: options.Tracker = None,
    peer: options.Peer = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    heartbeat_port: options.HeartbeatPort = None,
    host: options.Host = None,
    announce: options.Announce = None,
    no_lan: options.NoLan = False,
    http_open: options.HttpOpen = False,
    max_upload: options.MaxUpload = None,
    data_cap: options.DataCap = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    accept_token_file: AcceptTokenFileOption = None,
    owner: options.Owner = None,
    name: options.Name = None,
    data: options.Data = None,
    no_training: options.NoTraining = False,
    model: options.Model = None,
    base: options.Base = None,
    lora_rank: options.LoraRank = None,
    lora_alpha: options.LoraAlpha = None,
    lora_targets: options.LoraTargets = None,
    lora_train_a: options.LoraTrainA = False,
    lora_dropout: options.LoraDropout = None,
    only_on_mains: options.OnlyOnMains = False,
    only_when_idle: options.OnlyWhenIdle = False,
    hours: options.Hours = None,
    cpu_share: options.CpuShare = None,
    state_dir: options.StateDir = None,
    fresh: options.Fresh = False,
    rounds: options.Rounds = None,
    minutes: options.Minutes = None,
    tokens: options.Tokens = None,
    until_loss: options.UntilLoss = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "plain",
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out torch, which takes seconds to minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Look what would keep a node from training here, or from being reached; say the fix.

    Takes the flags, variables and file that the node gets, so that `doctor` can stand for `node`
    in a command line; those that say how long it runs or what it logs change nothing. The exit
    code is 70 if a node would not run or not find the others, else 0. docs/doctor.md explains
    every line.

    Examples:
      neuroswarm doctor

      neuroswarm doctor --token-file token --tracker http://10.0.0.5:7101
    """
    findings = []
    for finding in examine(*_admit(context.params, token, token_file)):
        findings.append(finding)
        if not as_json:
            typer.echo(str(finding))
    return conclude(findings, as_json=as_json)


def _admit(
    parameters: Mapping[str, Any], token: str | None, token_file: Path | None
) -> tuple[Patient, SwarmNodeConfig, SwarmToken]:
    """Whom to examine: refuses what a node would refuse before it starts."""
    from neuroswarm.cli import settings as merging
    from neuroswarm.identity.token import SwarmToken

    merged = merging.resolve(read_layers(parameters, os.environ))
    require_addresses(merged)
    require_an_end(merged)
    check_accepted(merged.config.network.accepted_token_files)
    text = find_token(token, token_file, os.environ, merged.config.network.token_file)
    secret = SwarmToken.OPEN if text is None else SwarmToken.parse(text)
    patient = replace(
        describe_patient(parameters, os.environ),
        fingerprint=None if secret.is_open else secret.fingerprint,
    )
    return patient, merged.config, secret


def examine(patient: Patient, settings: SwarmNodeConfig, token: SwarmToken) -> Iterator[Finding]:
    """Ask the others, then look at this machine; each finding as soon as it is known.

    Raises:
        ConfigError: the address of a tracker or peer is none.
    """
    from neuroswarm.clock import SystemClock
    from neuroswarm.doctor.judge_ways import judge_ways, tell_time
    from neuroswarm.doctor.local import examine_machine
    from neuroswarm.hardware.interfaces import read_interfaces

    clock = SystemClock()
    explored = _explore(patient, settings, token, clock)
    yield from examine_machine(patient, clock=clock, told=tell_time(explored.ways))
    yield from judge_ways(explored, read_interfaces(), patient.announce)


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
        announce=", ".join(settings.network.announce_host) or None,
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


def _explore(
    patient: Patient, settings: SwarmNodeConfig, token: SwarmToken, clock: Clock
) -> Explored:
    import asyncio

    from neuroswarm.discovery.hint import read_hints
    from neuroswarm.doctor.calling_back import Place
    from neuroswarm.doctor.exploring import Explored

    network = settings.network
    hints = read_hints(network.trackers, network.peers)
    if not hints:
        return Explored()
    numbers = dict(patient.ports.ports)
    place = None
    if numbers:
        first = (patient.announce or "").partition(",")[0]  # of several hosts the best
        place = Place(network.host, numbers[GRPC], numbers[HEARTBEAT], announce=first or None)
    return asyncio.run(_ask_all(hints, place, token, clock))


async def _ask_all(
    hints: Sequence[Hint], place: Place | None, token: SwarmToken, clock: Clock
) -> Explored:
    from neuroswarm.discovery.host_names import NameLookup
    from neuroswarm.doctor.calling_back import ask_to_call_back
    from neuroswarm.doctor.exploring import explore
    from neuroswarm.identity.sealing import Sealer

    explored = await explore(hints, Sealer(token.datagram_key), clock, NameLookup())
    if place is None:
        return explored
    calls = await ask_to_call_back(explored.ways, place, token, clock)
    return replace(explored, calls_back=calls)


def _read_ports(merged: Settings) -> PortFacts:
    from neuroswarm.doctor.judge_network import PortFacts

    claims = PortClaims()
    try:
        plan = plan_ports(wish_ports(merged), PortProbe(merged.config.network.host, claims).is_free)
    except NoPort as error:
        return PortFacts(failure=error.said, fix=error.fix)
    finally:
        claims.release()
    ports = ((HTTP, plan.http), (GRPC, plan.grpc), (HEARTBEAT, plan.heartbeat))
    return PortFacts(ports, plan.remarks)
