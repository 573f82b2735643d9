"""`neuroswarm deploy remove`: the end of a fleet's nodes, and of what they trained if it must."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    STACK,
    Confirmed,
    DryRun,
    Operator,
    StackName,
    Yes,
    require_confirmation,
)


def remove(
    name: StackName = STACK,
    volumes: Annotated[
        bool,
        typer.Option(
            "--volumes",
            help="Delete what was trained too: checkpoints and keys of this machine's nodes.",
        ),
    ] = False,
    confirmed: Confirmed = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """End the nodes and the tracker on all machines; the docker swarm stays.

    Nodes say goodbye and write a last checkpoint. What they trained stays in their volumes, and
    `neuroswarm deploy deploy` goes on from there. With --volumes it is deleted, on the machine of
    this docker engine alone: docker cannot reach the volumes of others.

    Examples:
      neuroswarm deploy remove

      neuroswarm deploy remove --volumes --dry-run
    """
    from neuroswarm.deployment.swarm_plan import plan_remove

    operator = Operator(dry_run, yes or volumes)
    steps = plan_remove(name, with_volumes=volumes)
    require_confirmation(name, confirmed, map(str, steps), deletes=volumes, is_dry_run=dry_run)
    if operator.carry_out(steps):
        _say_what_stays(name, with_volumes=volumes)


def _say_what_stays(name: str, *, with_volumes: bool) -> None:
    ours = f"--filter label=com.docker.stack.namespace={name}"
    if with_volumes:
        typer.echo("volumes of other machines stay; on each of them, if they are to go too:")
        typer.echo(f"  docker volume rm $(docker volume ls --quiet {ours})")
    else:
        typer.echo(f"what was trained stays in volumes: docker volume ls {ours}")
