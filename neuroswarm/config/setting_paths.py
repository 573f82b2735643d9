"""Which settings are paths, as their types say, and what their texts are as whole paths.

Refuses to know what is at the paths.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from neuroswarm.config.model_shape import HF_PREFIX
from neuroswarm.config.section import Section, split_list
from neuroswarm.config.swarm_node import SwarmNodeConfig

MODEL = "training.model"
"""The one setting that is a path only where it begins with `hf:`."""


@cache
def path_settings() -> frozenset[str]:
    """The settings whose values are paths, each as `section.key`, or lists of them."""
    return frozenset(name for name, kind in _annotations().items() if _names_path(kind))


def find_paths(config: SwarmNodeConfig) -> dict[str, tuple[Path, ...]]:
    """The paths that are set, by their settings, as they are written."""
    found = {}
    for setting in sorted(path_settings()):
        value: Any = config
        for part in setting.split("."):
            value = getattr(value, part)
        found[setting] = tuple(value) if isinstance(value, tuple) else (value,) if value else ()
    if (model := config.training.model).startswith(HF_PREFIX):
        found[MODEL] = (Path(model.removeprefix(HF_PREFIX)),)
    return {setting: paths for setting, paths in found.items() if paths}


def make_whole(path: Path) -> Path:
    """The path from the root on, with `~` as the home of whoever calls, and without `..`.

    Links are followed only where there is a `..`, which is the parent of what they lead to.
    """
    whole = Path(os.path.expanduser(path)).absolute()
    return whole.resolve() if ".." in whole.parts else whole


def make_text_whole(setting: str, text: str) -> str:
    """The text of a setting with each path in it whole; that of another setting as it is."""
    if setting == MODEL and text.startswith(HF_PREFIX):
        return f"{HF_PREFIX}{make_whole(Path(text.removeprefix(HF_PREFIX)))}"
    if setting not in path_settings() or not text.strip():
        return text
    parts = split_list(text) if get_origin(_annotations()[setting]) is tuple else (text.strip(),)
    return ",".join(str(make_whole(Path(part))) for part in cast("tuple[str, ...]", parts))


def _annotations() -> dict[str, Any]:
    """The type of every setting."""
    found: dict[str, Any] = {}
    for name, field in SwarmNodeConfig.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= {f"{name}.{key}": one.annotation for key, one in kind.model_fields.items()}
        else:
            found[name] = kind
    return found


def _names_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_names_path, get_args(annotation)))
