"""`neuroswarm deploy build|push`: the image of a fleet with several kinds of processors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    DryRun,
    File,
    Operator,
    Yes,
    packaged,
    read_image,
    refuse_together,
)
from neuroswarm.cli.options import read_path, read_word
from neuroswarm.deployment.image_plan import FLEET, Recipe
from neuroswarm.deployment.variables import DEFAULT_IMAGE
from neuroswarm.errors import ConfigError

Context = Annotated[
    Path | None,
    typer.Argument(
        help="Folder of neuroswarm's sources, or one that holds its wheel and nothing else. "
        "Default: this folder.",
        parser=read_path,
        metavar="CONTEXT",
        show_default=False,
    ),
]
Platforms = Annotated[
    str, typer.Option(help="What it is to run on, with commas.", metavar="PLATFORMS")
]
BuildArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--build-arg",
        help="NAME=VALUE for the Dockerfile, or NAME, with the environment's value; may be given "
        "again.",
        metavar="ARG",
    ),
]
Builder = Annotated[
    str | None,
    typer.Option(
        help="Name of a builder (`docker buildx ls`). Default: the one in use.",
        parser=read_word,
        metavar="NAME",
        show_default=False,
    ),
]
PushedImage = Annotated[
    str | None,
    typer.Option(
        "--image",
        help="REGISTRY/NAME:TAG, as all machines pull it. There is no default: neither a registry "
        "nor a tag is guessed.",
        parser=read_image,
        metavar="IMAGE",
        show_default=False,
    ),
]

ALL_PLATFORMS = ",".join(FLEET)


def build(
    context: Context = None,
    image: Annotated[
        str,
        typer.Option(
            help="The image, with its registry and tag.", parser=read_image, metavar="IMAGE"
        ),
    ] = DEFAULT_IMAGE,
    platforms: Platforms = ALL_PLATFORMS,
    load: Annotated[
        bool,
        typer.Option(
            "--load", help="Put it among this machine's images; takes one of --platforms."
        ),
    ] = False,
    file: File = None,
    build_arguments: BuildArguments = None,
    builder: Builder = None,
    dry_run: DryRun = False,
) -> None:
    """Build the image for PCs and Raspberry Pis at once, or for one of them with --load.

    Without --load it stays in the builder's cache, from which `push` takes it.

    Examples:
      neuroswarm deploy build

      neuroswarm deploy build --platforms linux/amd64 --load
    """
    from neuroswarm.deployment.image_plan import plan_build

    recipe = _read_recipe(context, image, platforms, file, build_arguments, builder)
    Operator(dry_run).carry_out(plan_build(recipe, load=load), asks=False)


def push(
    command: typer.Context,
    context: Context = None,
    image: PushedImage = None,
    platforms: Platforms = ALL_PLATFORMS,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Take this image out of a registry instead of building one.",
            parser=read_image,
            metavar="IMAGE",
            show_default=False,
        ),
    ] = None,
    single: Annotated[
        bool,
        typer.Option(
            "--single", help="All machines have the one kind of processor of --platforms."
        ),
    ] = False,
    file: File = None,
    build_arguments: BuildArguments = None,
    builder: Builder = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Publish the image in a registry, once it is seen to run on all kinds of machines.

    It is built (or taken from the builder's cache) and pushed with the tag TAG-candidate, its list
    of platforms is read back, and only if none is missing it gets its own tag: nodes never
    pull an image that some of them cannot run.

    Examples:
      neuroswarm deploy push --image registry.lan:5000/neuroswarm:0.1.0

      neuroswarm deploy push --image registry.lan:5000/neuroswarm:0.1.0 --from ghcr.io/me/ns:0.1.0
    """
    from neuroswarm.deployment import image_plan, manifests
    from neuroswarm.deployment.names import require_pushed_image

    if source is not None:
        building = ("context", "file", "build_arguments", "builder")
        refuse_together(command, "--from", "it takes what is built already", *building)
    image = require_pushed_image(image)
    wanted = image_plan.read_platforms(platforms)
    manifests.require_several(wanted, is_single_meant=single)
    operator = Operator(dry_run, yes)
    seen = source or image_plan.candidate(image)
    publishing = image_plan.plan_publish(image, seen)
    making = []
    if source is None:
        recipe = _read_recipe(context, image, platforms, file, build_arguments, builder)
        making = image_plan.plan_candidate(recipe)
    inspection = image_plan.plan_inspect(seen)
    if not operator.agree([*map(str, making), str(inspection), *map(str, publishing)]):
        return
    operator.run(making)
    manifest = operator.look(inspection)
    assert manifest is not None, "this is no dry run"
    found = manifests.require_platforms(seen, manifest, wanted, is_single_meant=single)
    operator.run(publishing)
    typer.echo(f"{image} runs on {', '.join(found) or wanted[0]}")


def _read_recipe(
    named: Path | None,
    image: str,
    platforms: str,
    file: Path | None,
    build_arguments: list[str] | None,
    builder: str | None,
) -> Recipe:
    """What to build; ConfigError if there is nothing to build it from."""
    from neuroswarm.deployment.image_plan import read_build_arguments, read_platforms
    from neuroswarm.deployment.stack_file import require_file

    if file is not None:
        require_file("Dockerfile", file)
    context = named or Path()
    if not any(context.glob("*.whl")) and not (context / "pyproject.toml").is_file():
        raise ConfigError(
            f"nothing to build from in {context}: neither pyproject.toml nor a wheel (name the "
            "folder of neuroswarm's sources, or one that holds its wheel and nothing else)"
        )
    return Recipe(
        image=image,
        context=context,
        dockerfile=file or packaged("Dockerfile"),
        platforms=read_platforms(platforms),
        build_arguments=read_build_arguments(build_arguments or ()),
        builder=builder,
    )
