"""`neuroswarm deploy deploy|update|logs|scale`: the stack's services over their life."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    STACK,
    DryRun,
    Operator,
    StackName,
    Yes,
    packaged,
)
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import read_path
from neuroswarm.deployment.variables import DEFAULT_IMAGE, DEFAULT_SECRET

if TYPE_CHECKING:
    from neuroswarm.deployment.command import Word


class Service(StrEnum):
    """Services of the stack files."""

    NODE = "node"
    TRACKER = "tracker"


class Resolution(StrEnum):
    """Whether docker asks the registry for the image's digest and platforms."""

    ALWAYS = "always"
    CHANGED = "changed"
    NEVER = "never"


Services = Annotated[
    list[Service] | None,
    typer.Option(
        "--service",
        help="Which of the stack's services; may be given again. Default: node.",
        show_default=False,
    ),
]
ResolveImage = Annotated[
    Resolution,
    typer.Option(help="never: for images that are on the machines, and in no registry."),
]
TrackerHost = Annotated[
    str | None,
    typer.Option(
        help="Address of the machine that has the tracker, as the others reach it. Default: "
        "what docker knows of the machine with its label.",
        metavar="HOST",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        help="A stack file of your own in place of ours (`neuroswarm deploy files` copies it); "
        "given again, files are joined.",
        parser=read_path,
        metavar="PATH",
        show_default=False,
    ),
]
StackImage = Annotated[
    str | None,
    typer.Option(
        "--image",
        help=f"The image, with its registry and tag. Default: {DEFAULT_IMAGE}. (env IMAGE)",
        show_default=False,
    ),
]
StackSecret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        help="Name of the docker secret that holds the swarm's token. "
        f"Default: {DEFAULT_SECRET}. (env TOKEN_SECRET)",
        show_default=False,
    ),
]
SettingsVersion = Annotated[
    str | None,
    typer.Option(
        help="Another one after node.toml was changed. Default: 1. (env SETTINGS_VERSION)",
        show_default=False,
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--variable",
        help="NAME=VALUE for another variable of the stack file, like NODE_PORT=7201 or "
        "MTU=1280; may be given again.",
        metavar="NAME=VALUE",
    ),
]


def deploy(
    tracker_host: TrackerHost = None,
    image: StackImage = None,
    name: StackName = STACK,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay", help="On an overlay network, not the machines' own; without a tracker."
        ),
    ] = False,
    files: Files = None,
    secret: StackSecret = None,
    settings_version: SettingsVersion = None,
    variables: Variables = None,
    resolve_image: ResolveImage = Resolution.ALWAYS,
    with_registry_auth: Annotated[
        bool,
        typer.Option("--with-registry-auth", help="Give the machines this user's registry login."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Put a node on every machine of the docker swarm, and the tracker on one of them.

    The stack file is used as it is written; its variables come from the flags. Machines that join
    later get a node by themselves. Run it again after a change: only what changed is restarted.

    Examples:
      neuroswarm deploy deploy --image registry.lan:5000/neuroswarm:0.1.0

      neuroswarm deploy deploy --tracker-host 10.0.0.5 --dry-run

      neuroswarm deploy deploy --overlay --variable MTU=1280

      neuroswarm deploy deploy --file fleet/stack.yml --settings-version 2
    """
    from neuroswarm.deployment.service_plan import plan_deploy
    from neuroswarm.deployment.variables import choose_variables, read_variables

    chosen: dict[str, Word | None] = {
        "TRACKER_HOST": tracker_host,
        "IMAGE": image,
        "TOKEN_SECRET": secret,
        "SETTINGS_VERSION": settings_version,
        **read_variables(variables or (), allows_others=bool(files)),
    }
    used = choose_variables(chosen, os.environ, needs_tracker=not overlay)
    packed = packaged("stack-overlay.yml" if overlay else "stack.yml")
    steps = plan_deploy(
        name,
        files or [packed],
        used,
        resolve_image=resolve_image.value,
        with_registry_auth=with_registry_auth,
    )
    if Operator(dry_run, yes).carry_out(steps):
        typer.echo("machines pull the image now, which takes minutes: `neuroswarm deploy status`")


def update(
    image: Annotated[
        str | None,
        typer.Option(help="The image to change to, with its registry and tag.", show_default=False),
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to what was before the last update.")
    ] = False,
    name: StackName = STACK,
    services: Services = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            help="Machines at a time. Default: as the stack file says, 2.",
            min=1,
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Pause between them, like 60s. Default: as the stack file says, 60s.",
            show_default=False,
        ),
    ] = None,
    resolve_image: ResolveImage = Resolution.ALWAYS,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not wait and show how it goes.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Change the nodes to another image, a few machines at a time; the others train on.

    A node is stopped before its successor starts, and goes on from its last checkpoint. If a new
    one fails the update pauses: the rest stay as they are, and --rollback undoes it.

    Examples:
      neuroswarm deploy update --image registry.lan:5000/neuroswarm:0.1.1

      neuroswarm deploy update --rollback
    """
    from neuroswarm.deployment.service_plan import Pace, plan_rollback, plan_update

    if rollback == (image is not None):
        raise typer.BadParameter("give either --image or --rollback")
    chosen = [f"{name}_{service.value}" for service in services or [Service.NODE]]
    if image is None:
        steps = plan_rollback(chosen, is_detached=detach)
    else:
        steps = plan_update(
            chosen,
            image,
            Pace(parallelism, delay),
            resolve_image=resolve_image is not Resolution.NEVER,
            is_detached=detach,
        )
    if Operator(dry_run, yes).carry_out(steps) and not rollback:
        typer.echo("to go back: neuroswarm deploy update --rollback")


def logs(
    name: StackName = STACK,
    service: Annotated[Service, typer.Option(help="Whose.")] = Service.NODE,
    node: Annotated[
        str | None,
        typer.Option(help="Of this machine only, by host name.", metavar="HOSTNAME"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Only newer ones: 10m, 2h, or 2026-01-31T12:00:00.", show_default=False),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(help="So many lines of each task at most.", min=0, show_default=False),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="With the time at which they were written.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Show what nodes on all machines, or on one, log.

    Examples:
      neuroswarm deploy logs --follow --since 10m

      neuroswarm deploy logs --node pi01 --tail 100
    """
    from neuroswarm.deployment.service_plan import LogWishes, plan_logs

    wishes = LogWishes(
        follow=follow,
        since=since,
        tail=None if tail is None else str(tail),
        node=node,
        with_times=timestamps,
    )
    steps = plan_logs(f"{name}_{service.value}", wishes)
    Operator(dry_run).carry_out(steps, asks=False)


SCALING = """\
The service node is global: docker keeps one node on each machine of the docker swarm, and a machine
that joins gets one by itself. So there is no number to set; machines are what is scaled:

  more      neuroswarm deploy join ADDRESS --join-token ...     on the machine that comes
  fewer     neuroswarm deploy label NODE --skip                 takes the node off a machine
  again     neuroswarm deploy label NODE --no-skip              puts it there again

A machine that is skipped keeps its node's state and goes on from it. Which machines are skipped:

  neuroswarm deploy status

Several nodes on one machine, for development, are a matter of docker compose:

  neuroswarm deploy compose up --nodes 4"""


def scale(
    count: Annotated[
        int | None, typer.Argument(help="A number of nodes.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Explain how a fleet gets more or fewer nodes: there is one on each machine.

    Examples:
      neuroswarm deploy scale
    """
    typer.echo(SCALING)
    if count is None or dry_run:
        return ExitCode.OK
    typer.echo(f"neuroswarm: cannot scale to {count}: see above; nothing was changed", err=True)
    return ExitCode.USAGE
