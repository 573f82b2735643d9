"""`neuroswarm deploy init|join|label`: the machines of a fleet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import SECRET, DryRun, Operator, Secret, Yes, announce
from neuroswarm.cli.deploy_token import choose_source
from neuroswarm.cli.options import read_path, read_word
from neuroswarm.deployment import names
from neuroswarm.deployment.labels import NodeClass, choose_labels


def read_place(text: str) -> str:
    """A machine's address that was given; ConfigError if docker knows none like it."""
    return names.require_place(read_word(text))


Advertise = Annotated[
    str | None,
    typer.Option(
        help="Address of this machine that the others reach, or its network interface. Default: "
        "docker chooses.",
        parser=read_place,
        metavar="ADDRESS",
        show_default=False,
    ),
]


def init(
    advertise: Advertise = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the swarm's token. If it is missing a NEW token, of a new swarm, is "
            "made and kept in it. Default: neuroswarm-token here. (env NEUROSWARM_TOKEN_FILE, "
            "NEUROSWARM_TOKEN)",
            parser=read_path,
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    secret: Secret = SECRET,
    tracker: Annotated[
        bool, typer.Option("--tracker/--no-tracker", help="Let this machine have the tracker.")
    ] = True,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Make this machine the first manager of a docker swarm, with the swarm's token as a secret.

    Prints what to run on the others. What is there already is kept, so that it may be run again;
    with another --secret and --token-file it makes the secret for a change of the token. A token
    file that is missing gets a new token: nodes with the token of another file are another swarm.

    Examples:
      neuroswarm deploy init --advertise 10.0.0.5

      neuroswarm deploy init --dry-run

      neuroswarm deploy init --secret neuroswarm_token_2 --token-file token-2
    """
    from neuroswarm.deployment import swarm_plan
    from neuroswarm.deployment.readings import SwarmState

    operator = Operator(dry_run, yes)
    if dry_run:
        typer.echo("# on a manager `swarm init` is left out, and a secret that is there already")
    operator.look(swarm_plan.READ_ENGINE)
    found = operator.look(swarm_plan.READ_SWARM)
    state = SwarmState(False, False, "") if found is None else SwarmState.read(found)
    swarm_plan.require_no_worker(is_active=state.is_active, is_manager=state.is_manager)
    known = (operator.look(swarm_plan.READ_SECRETS) or "").split() if state.is_manager else []
    making = swarm_plan.plan_init(advertise, is_manager=state.is_manager)
    if state.is_manager and advertise is not None:
        typer.echo("a docker swarm is there already: kept, with the address that it has")
    source = None
    if secret in known:
        unused = "" if token_file is None else f", with its own token; {token_file} is not used"
        typer.echo(f"the secret {secret} is there already: kept{unused}")
    else:
        source = choose_source(token_file, os.environ)
        if source.new_file is not None:
            typer.echo(f"{'# ' if dry_run else ''}{source.remark}")
        making += swarm_plan.plan_secret(secret, source.fed)
    if tracker:
        making += swarm_plan.plan_tracker()
    lines = [] if source is None else source.lines
    if operator.agree([*lines, *map(str, making)]):
        if source is not None:
            for line in source.lines:
                announce(line)
            source.keep()
        operator.run(making)
    _show_joining(operator)


def _show_joining(operator: Operator) -> None:
    """Say what to run on the other machines."""
    from neuroswarm.deployment import swarm_plan
    from neuroswarm.deployment.readings import SwarmState

    found = operator.look(swarm_plan.READ_SWARM)
    join_token = operator.look(swarm_plan.READ_JOIN_TOKEN)
    if found is None or join_token is None:
        return
    address = swarm_plan.with_port(SwarmState.read(found).address)
    typer.echo("on every other machine run one of these; who has the token of it can join:")
    typer.echo(f"  docker swarm join --token {join_token.strip()} {address}")
    typer.echo(f"  neuroswarm deploy join {address} --join-token {join_token.strip()}")


def join(
    address: Annotated[
        str,
        typer.Argument(
            help="A manager: HOST or HOST:PORT (2377).", parser=read_place, metavar="ADDRESS"
        ),
    ],
    join_token: Annotated[
        str,
        typer.Option(
            help="What `neuroswarm deploy init` printed, SWMTKN-...; not the swarm's token of "
            "neuroswarm.",
            envvar="NEUROSWARM_JOIN_TOKEN",
            show_envvar=True,
        ),
    ],
    advertise: Advertise = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take this machine into the docker swarm of a manager: it gets a node by itself.

    Examples:
      neuroswarm deploy join 10.0.0.5 --join-token SWMTKN-1-...
    """
    from neuroswarm.deployment.swarm_plan import plan_join, require_join_token

    require_join_token(join_token)
    if Operator(dry_run, yes).carry_out(plan_join(address, join_token, advertise)):
        typer.echo("on a manager: `neuroswarm deploy status` shows this machine, and")
        typer.echo("`neuroswarm deploy label HOSTNAME --class desktop` says what it is")


def label(
    nodes: Annotated[
        list[str],
        typer.Argument(help="Machines, by host name or id.", parser=read_word, metavar="NODE..."),
    ],
    node_class: Annotated[
        NodeClass | None, typer.Option("--class", help="What kind of computer they are.")
    ] = None,
    skip: Annotated[
        bool | None,
        typer.Option("--skip/--no-skip", help="Take the node off them, or put it there again."),
    ] = None,
    tracker: Annotated[
        bool | None,
        typer.Option("--tracker/--no-tracker", help="Whether they may have the tracker."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Say what machines are, and which of them get a node or the tracker.

    Works at once: a machine that is skipped loses its node (which says goodbye and keeps its
    state), one that is no longer skipped gets it back.

    Examples:
      neuroswarm deploy label pi01 pi02 pi03 --class rpi

      neuroswarm deploy label old-laptop --skip
    """
    from neuroswarm.deployment.swarm_plan import plan_label

    labels = choose_labels(node_class, is_skipped=skip, has_tracker=tracker)
    if not labels:
        raise typer.BadParameter("give --class, --skip, --no-skip, --tracker or --no-tracker")
    Operator(dry_run, yes).carry_out(plan_label(nodes, labels))
