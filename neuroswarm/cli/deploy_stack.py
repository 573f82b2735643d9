"""`neuroswarm deploy deploy`: the stack, put there or changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    read_image,
    read_secret,
    refuse_together,
)
from neuroswarm.cli.options import read_path, read_word
from neuroswarm.deployment.variables import DEFAULT_IMAGE, DEFAULT_SECRET

if TYPE_CHECKING:
    from neuroswarm.deployment.command import Word


STACK_FILES = ("stack.yml", "stack-overlay.yml")
COMPOSE_FILES = ("compose.yml",)


class Resolution(StrEnum):
    """Whether docker asks the registry for the image's digest and platforms."""

    ALWAYS = "always"
    CHANGED = "changed"
    NEVER = "never"


ResolveImage = Annotated[
    Resolution,
    typer.Option(help="never: for images that are on the machines, and in no registry."),
]
TrackerHost = Annotated[
    str | None,
    typer.Option(
        help="Address of the machine that has the tracker, as the others reach it. Default: "
        "what docker knows of the machine with its label. (env TRACKER_HOST)",
        parser=read_word,
        metavar="HOST",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        help="A stack file of your own in place of ours (`neuroswarm deploy files` copies it); "
        "given again, files are joined. The settings that it mounts for nodes are checked.",
        parser=read_path,
        metavar="PATH",
        show_default=False,
    ),
]
StackImage = Annotated[
    str | None,
    typer.Option(
        "--image",
        help=f"The image, with its registry and tag. Default: {DEFAULT_IMAGE}, or what a compose "
        "file of your own says. (env IMAGE)",
        parser=read_image,
        metavar="IMAGE",
        show_default=False,
    ),
]
StackSecret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        help="Name of the docker secret that holds the swarm's token. "
        f"Default: {DEFAULT_SECRET}. (env TOKEN_SECRET)",
        parser=read_secret,
        metavar="NAME",
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


def read_stack_files(
    files: Sequence[Path], given: Mapping[str, str | None], *, is_stack: bool
) -> dict[str, Word]:
    """The variables that stack or compose files get, the settings that they mount being checked.

    Args:
        files: In the order in which docker joins them.
        given: Values by the variable's name, None where none was given.
        is_stack: False for compose, which takes variables that nobody gave from an `.env` file.

    Raises:
        ConfigError: a file is not there, a variable has no use or a wrong value, or nodes would
            refuse the settings.
    """
    from neuroswarm.cli.config import merge
    from neuroswarm.deployment import stack_file
    from neuroswarm.deployment.variables import choose_variables

    texts = [stack_file.read_text(file) for file in files]
    named = stack_file.find_variables(texts)
    ours = [stack_file.read_text(packaged(name)) for name in STACK_FILES + COMPOSE_FILES]
    used = choose_variables(
        given,
        os.environ,
        named,
        are_ours=all(text in ours for text in texts),
        has_defaults=is_stack,
    )
    if is_stack:
        stack_file.require_given(named, used, os.environ)
    for settings in stack_file.find_settings(texts, files[0].parent, binds_here=not is_stack):
        merge({"config": settings}, {})
    return used


def deploy(
    command: typer.Context,
    tracker_host: TrackerHost = None,
    image: StackImage = None,
    name: StackName = STACK,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay",
            help="On an overlay network, not the machines' own; without a tracker: our "
            "stack-overlay.yml in place of stack.yml.",
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
    from neuroswarm.deployment.variables import join_given, read_variables

    if overlay:
        why = "a file says itself which network it is for (name that of the overlay: --file alone)"
        refuse_together(command, "--overlay", why, "files")
    flags = {
        "TRACKER_HOST": tracker_host,
        "IMAGE": image,
        "TOKEN_SECRET": secret,
        "SETTINGS_VERSION": settings_version,
    }
    stack_files = files or [packaged("stack-overlay.yml" if overlay else "stack.yml")]
    given = join_given(flags, read_variables(variables or ()))
    used = read_stack_files(stack_files, given, is_stack=True)
    steps = plan_deploy(
        name,
        stack_files,
        used,
        resolve_image=resolve_image.value,
        with_registry_auth=with_registry_auth,
    )
    if Operator(dry_run, yes).carry_out(steps):
        typer.echo("machines that lack the image pull it, for minutes: `neuroswarm deploy status`")
