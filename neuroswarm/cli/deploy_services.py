"""`neuroswarm deploy update|logs|scale`: the stack's services over their life."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    STACK,
    DryRun,
    Operator,
    StackName,
    Yes,
    read_image,
    refuse_together,
)
from neuroswarm.cli.deploy_stack import Resolution, ResolveImage
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import read_word
from neuroswarm.deployment import names


class Service(StrEnum):
    """Services of the stack files."""

    NODE = "node"
    TRACKER = "tracker"


def read_delay(text: str) -> str:
    """The duration that --delay was given; ConfigError if docker knows none like it."""
    return names.require_duration("--delay", text)


def read_since(text: str) -> str:
    """The time that --since was given; ConfigError if docker knows none like it."""
    return names.require_past("--since", text)


Services = Annotated[
    list[Service] | None,
    typer.Option(
        "--service",
        help="Which of the stack's services; may be given again. Default: node.",
        show_default=False,
    ),
]


def update(
    command: typer.Context,
    image: Annotated[
        str | None,
        typer.Option(
            help="The image to change to, with its registry and tag.",
            parser=read_image,
            metavar="IMAGE",
            show_default=False,
        ),
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
            parser=read_delay,
            metavar="DURATION",
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
    if rollback:
        why = "it goes back at the pace that the service has, to the image that it had"
        refuse_together(command, "--rollback", why, "parallelism", "delay", "resolve_image")
    chosen = [f"{name}_{service.value}" for service in dict.fromkeys(services or [Service.NODE])]
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
        typer.Option(
            help="Of this machine only, by host name.", parser=read_word, metavar="HOSTNAME"
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only newer ones: 10m, 2h, or 2026-01-31T12:00:00.",
            parser=read_since,
            metavar="TIME",
            show_default=False,
        ),
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
    if count is None:
        return ExitCode.OK
    typer.echo(f"neuroswarm: cannot scale to {count}: see above; nothing was changed", err=True)
    return ExitCode.USAGE
