"""`neuroswarm node`: join a swarm, or start one, and train."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from neuroswarm.cli import node_options as options
from neuroswarm.cli.addresses import require_addresses
from neuroswarm.cli.logs import configure_logging
from neuroswarm.cli.options import (
    AcceptTokenFileOption,
    LogFormatOption,
    LogLevelOption,
    TokenFileOption,
    TokenOption,
)
from neuroswarm.cli.ports import PortPlan, PortProbe, PortWishes, plan_ports
from neuroswarm.cli.swarm_token import check_accepted, check_token, find_token
from neuroswarm.values import Endpoint

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Layer, Settings
    from neuroswarm.config import SwarmNodeConfig
    from neuroswarm.node.node import SwarmNode

logger = logging.getLogger(__name__)

SWITCHES: Mapping[str, tuple[str, bool]] = {
    "no_lan": ("network.lan", False),
    "no_training": ("run.training", False),
    "only_on_mains": ("guest.only_on_mains", True),
    "only_when_idle": ("guest.only_when_idle", True),
}
"""Flags without a value, and the settings that they make."""


def node(
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
    model: options.Model = None,
    base: options.Base = None,
    lora_rank: options.LoraRank = None,
    lora_alpha: options.LoraAlpha = None,
    lora_targets: options.LoraTargets = None,
    lora_train_a: options.LoraTrainA = False,
    lora_dropout: options.LoraDropout = None,
    no_training: options.NoTraining = False,
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
) -> None:
    """Join a swarm, or start one, and train.

    Without --tracker or --peer the node looks for others on the local network and among those
    that it knew; if there are none it starts a swarm, which others join by naming it.
    Settings come from flags, then NEUROSWARM_SECTION_KEY variables, then the TOML file.

    Examples:
      neuroswarm node

      neuroswarm node --tracker http://10.0.0.5:7101 --token-file token --data texts/

      neuroswarm node --rounds 20 --set diloco.inner_steps=100 --set training.dim=256
    """
    from neuroswarm.cli.signals import run_service
    from neuroswarm.doctor.torch_gate import require_torch
    from neuroswarm.hardware.processor import read_processor
    from neuroswarm.web.early import answering

    configure_logging(log_level, log_format)
    settings = gather(context.params, os.environ)
    text = find_token(token, token_file, os.environ, settings.network.token_file)
    if text is not None:
        check_token(text)
    check_accepted(settings.network.accepted_token_files)
    say_how_to_find(settings)
    with answering(Endpoint(settings.network.host, settings.network.port)):
        require_torch(read_processor())
        run_service(lambda: _create(text, settings), _work, describe)


def say_how_to_find(settings: SwarmNodeConfig) -> None:
    """Tell a user who named nobody how to, before anything that takes long is loaded."""
    from neuroswarm.discovery.hint import WAYS
    from neuroswarm.discovery.sources import describe_sources
    from neuroswarm.hardware.container import read_container

    if not settings.network.trackers and not settings.network.peers:
        what = describe_sources(
            settings,
            has_own_network=read_container().has_own_network,
            is_known=any(map(_remembers, _state_folders(settings))),
        )
        logger.info("no --tracker and no --peer: %s. To join others elsewhere, %s", what, WAYS)


def _state_folders(settings: SwarmNodeConfig) -> list[Path]:
    """The folder that was given, or those of all nodes of this swarm that ran here without one."""
    from neuroswarm.config.swarm_node import DEFAULT_STATE_DIR

    if settings.state_dir is not None:
        return [settings.state_dir.expanduser()]
    return list((DEFAULT_STATE_DIR / settings.network.name).expanduser().glob("node*"))


def _remembers(folder: Path) -> bool:
    """Whether peers are remembered in a state folder; a damaged file is as none."""
    from neuroswarm.discovery.peers_file import PEERS_FILE, decode_acquaintances
    from neuroswarm.errors import CheckpointError

    try:
        return bool(decode_acquaintances((folder / PEERS_FILE).read_bytes()))
    except (OSError, CheckpointError):
        return False


def gather(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> SwarmNodeConfig:
    """The node's settings, with ports that are free now.

    Args:
        parameters: Values of the command's flags by name; None or False if not given.
        environment: Process environment.

    Raises:
        ConfigError: a setting is unknown or not legal, a hint's address is none, no peer could
            use a host that is announced, or a port that was asked for is taken.
    """
    from neuroswarm.cli import settings as merging
    from neuroswarm.discovery.announce import warn_of_deafness

    layers = read_layers(parameters, environment)
    merged = merging.resolve(layers)
    require_addresses(merged)
    require_an_end(merged)
    plan = _plan(merged)
    for remark in plan.remarks:
        logger.warning("%s", remark)
    network = merged.config.network
    if warning := warn_of_deafness(network.host, network.announce_host):
        logger.warning("%s: give --host :: to listen on both", warning)
    return merging.resolve([*layers, _port_layer(plan)]).config


def read_layers(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> list[Layer]:
    """The settings of file, environment and flags, the stronger ones last.

    Args:
        parameters: As `gather` takes them.
        environment: Process environment.

    Raises:
        ConfigError: a setting is unknown or given by two flags, or the file cannot be read.
    """
    from neuroswarm.cli import settings as merging

    named = parameters.get("config") or environment.get("NEUROSWARM_CONFIG")
    flags = [
        merging.from_flags({n: parameters.get(n) for n in merging.SHORT_NAMES}),
        merging.from_assignments(parameters.get("assignments") or []),
    ]
    for name, (setting, value) in SWITCHES.items():
        if parameters.get(name):
            flag = f"--{name.replace('_', '-')}"
            flags.append(merging.from_values({setting: value}, flag))
    merging.require_one_place(flags)
    of_file = merging.from_file(Path(named)) if named else merging.Layer()
    return [of_file, merging.from_environment(environment), *flags]


def require_an_end(merged: Settings) -> None:
    """ConfigError if the run is to end by what a node that does not train never does."""
    from neuroswarm.errors import ConfigError

    run = merged.config.run
    if run.tokens is not None and not run.training:
        raise ConfigError(
            f"a node that does not train (set by {merged.origins['run.training']}) never trains on "
            f"{run.tokens} tokens (set by {merged.origins['run.tokens']}): end it by --rounds, "
            "--minutes or --until-loss, or not at all"
        )


def wish_ports(merged: Settings) -> PortWishes:
    """The ports that somebody has set."""
    return PortWishes(
        merged.asked("network.port"),
        merged.asked("network.grpc_port"),
        merged.asked("heartbeat.port"),
    )


def _plan(merged: Settings) -> PortPlan:
    return plan_ports(wish_ports(merged), PortProbe(merged.config.network.host).is_free)


def _port_layer(plan: PortPlan) -> Layer:
    from neuroswarm.cli.settings import from_values

    ports = {
        "network.port": plan.http,
        "network.grpc_port": plan.grpc,
        "heartbeat.port": plan.heartbeat,
    }
    return from_values(ports, "the port plan")


def _create(token: str | None, config: SwarmNodeConfig) -> SwarmNode:
    from neuroswarm.node.factory import create_swarm_node

    return create_swarm_node(
        node_token=token,
        port=config.network.port,
        tracker_url=None,
        config=config,
        available_memory_mb=config.resources.available_memory_mb,
        enable_training=config.run.training,
        max_storage_mb=config.resources.max_storage_mb,
        max_cpu_threads=config.resources.max_cpu_threads,
        device=config.resources.device,
    )


async def _work(running: SwarmNode) -> None:
    """Train until the run's limits; a node that does not train follows rounds until then."""
    if running.config.run.training:
        await running.run()
    else:
        await running.follow()


def describe(running: SwarmNode) -> str:
    """One line on how the node is, at any time of its life, for a service manager."""
    parts = running.core.parts
    if parts is None:
        return "starting"
    if not parts.replica.has_state:
        if parts.rounds.downloader.progress() is not None:
            return "joining: downloading the swarm's state"
        others = len(parts.membership.peers)
        return f"joining: looking for a swarm ({others} peers known)"
    state, loss = parts.replica.state, running.current_loss
    peers = len(parts.rounds.crowd.live())
    what = f"loss {loss:.3f}" if running.core.is_training and loss is not None else "not training"
    return f"round {state.round}, {what}, {peers} peers"
