"""Which docker commands build the image for several kinds of processors and publish it.

Refuses to run them, and to let a tag that nodes pull name an image that some of them cannot run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.deployment.command import Command, docker
from neuroswarm.deployment.names import PUSHED, require_image, require_pushed_image
from neuroswarm.deployment.variables import read_variables
from neuroswarm.errors import ConfigError

FLEET = ("linux/amd64", "linux/arm64")
"""What the image is built for: PCs and servers; Raspberry Pis with a 64-bit system."""

_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to build, from what."""

    image: str
    context: Path
    dockerfile: Path
    platforms: Sequence[str] = FLEET
    build_arguments: Sequence[str] = ()
    builder: str | None = None


def read_platforms(text: str) -> tuple[str, ...]:
    """Platforms out of `linux/amd64,linux/arm64`, each once; ConfigError if it is not that."""
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    odd = [name for name in named if not _PLATFORM.fullmatch(name)]
    if odd or not named:
        raise ConfigError(
            f"no platforms: {', '.join(odd) or text!r} (write them like {','.join(FLEET)})"
        )
    return named


def plan_build(recipe: Recipe, *, load: bool) -> list[Command]:
    """Build; into this engine's images with `load`, else into the builder's cache.

    Raises:
        ConfigError: several platforms are to be loaded, which engines cannot hold under one tag,
            or the image's name has a digest.
    """
    if "@" in recipe.image:
        raise ConfigError(
            f"no name to build under: {recipe.image!r} has a digest (write NAME:TAG or {PUSHED})"
        )
    if load and len(recipe.platforms) != 1:
        raise ConfigError(
            f"--load takes one platform: {','.join(recipe.platforms)} are "
            f"{len(recipe.platforms)} (add --platforms linux/amd64, or leave --load out and use "
            "`neuroswarm deploy push`)"
        )
    return [_build(recipe, recipe.image, "--load" if load else None)]


def candidate(image: str) -> str:
    """The tag under which an image is looked at before it gets its own.

    Raises:
        ConfigError: the image's name is none to push under.
    """
    return require_image(f"{require_pushed_image(image)}-candidate")


def read_build_arguments(texts: Sequence[str]) -> tuple[str, ...]:
    """NAME=VALUE, or NAME, which docker takes from the environment, as they are.

    Raises:
        ConfigError: one is neither, or two are of one name.
    """
    read_variables([text if "=" in text else f"{text}=" for text in texts])
    return tuple(texts)


def plan_candidate(recipe: Recipe) -> list[Command]:
    """Build what is not built yet, and push it under the candidate's tag."""
    return [_build(recipe, candidate(recipe.image), "--push")]


def plan_inspect(image: str) -> Command:
    """Read the manifest of an image in a registry."""
    return docker("buildx", "imagetools", "inspect", "--raw", image)


def plan_publish(image: str, source: str) -> list[Command]:
    """Give an image that is in a registry another name, with all its platforms."""
    return [docker("buildx", "imagetools", "create", "--tag", image, source)]


def _build(recipe: Recipe, tag: str, output: str | None) -> Command:
    words = ["buildx", "build", "--platform", ",".join(recipe.platforms), "--tag", tag]
    if recipe.builder is not None:
        words += ["--builder", recipe.builder]
    for argument in recipe.build_arguments:
        words += ["--build-arg", argument]
    if output is not None:
        words.append(output)
    return docker(*words, "--file", str(recipe.dockerfile), str(recipe.context))
