"""What platforms an image is for, by its manifest, and whether that is enough.

Refuses to fetch manifests.
Source: OCI image-spec v1.1, image-index.md and manifest.md; Docker's manifest list, schema 2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from neuroswarm.errors import ConfigError, DeployError

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
"""What registries take at most."""

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)


def read_platforms_of(image: str, manifest: str) -> list[str] | None:
    """Platforms that the index lists, like `linux/arm64`; None if it is one image without a list.

    Entries for what is no program (attestations, platform unknown) are left out.

    Raises:
        DeployError: this is no manifest.
    """
    try:
        if len(manifest) > MAX_MANIFEST_BYTES:
            raise ValueError(f"{len(manifest)} bytes (limit {MAX_MANIFEST_BYTES})")
        read = json.loads(manifest)
        if read.get("mediaType") not in _INDEXES and "manifests" not in read:
            return None
        named = [_name(entry.get("platform") or {}) for entry in read["manifests"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DeployError(f"what docker says of {image} is no manifest: {error}") from error
    return [name for name in named if name]


def require_platforms(
    image: str, manifest: str, wanted: Sequence[str], *, is_single_meant: bool = False
) -> list[str]:
    """The platforms of the image, all the wanted ones among them; none if it has no list.

    Raises:
        DeployError: it is for one kind of processor, or lacks a wanted one; says what follows.
    """
    found = read_platforms_of(image, manifest)
    if found is None and is_single_meant:
        return []
    if found is None:
        raise DeployError(
            f"{image} is an image for one kind of processor, without a list of platforms: "
            f'machines of another kind would refuse it ("no suitable node (unsupported platform)" '
            f'or "exec format error"); not published (build for {",".join(wanted)})'
        )
    missing = [name for name in wanted if not any(_fits(name, other) for other in found)]
    if missing:
        raise DeployError(
            f"{image} lacks {', '.join(missing)} (it has {', '.join(found) or 'none'}): machines "
            'of that kind would refuse it ("no suitable node (unsupported platform)"); '
            "not published"
        )
    return found


def require_several(platforms: Sequence[str], *, is_single_meant: bool) -> None:
    """DeployError if an image for one kind of processor is to be pushed and that is not meant.

    Raises:
        ConfigError: it is meant, but there are several kinds.
    """
    if len(platforms) > 1 and is_single_meant:
        raise ConfigError(
            f"--single takes one platform: {','.join(platforms)} are {len(platforms)} (add "
            "--platforms linux/amd64, or leave --single out)"
        )
    if len(platforms) < 2 and not is_single_meant:
        raise DeployError(
            f"an image for {platforms[0]} alone is not pushed: the other machines of a mixed "
            'fleet would refuse it ("no suitable node (unsupported platform)"); leave --platforms '
            "out for linux/amd64 and linux/arm64, or add --single if all machines are of that kind"
        )


def _name(platform: dict[str, str]) -> str:
    system, processor = platform.get("os", ""), platform.get("architecture", "")
    if not system or not processor or "unknown" in (system, processor):
        return ""
    variant = platform.get("variant", "")
    return f"{system}/{processor}/{variant}" if variant else f"{system}/{processor}"


def _fits(wanted: str, found: str) -> bool:
    return found == wanted or found.startswith(f"{wanted}/")
