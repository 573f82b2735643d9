"""What a stack or compose file wants: its variables, and the settings that its nodes read.

Reads the text by patterns, for which our files are made: what is written in another way (YAML
anchors between, variables in a path) is not found, and left to docker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from neuroswarm.errors import ConfigError

MAX_FILE_BYTES = 1024 * 1024
"""Of a stack or compose file; ours have 4 KB."""

_VARIABLE = re.compile(r"\$(?:\$|(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?P<must>:?\?)?)")
"""`$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME:?required}`; `$$` is a dollar."""
_QUOTED_OR_COMMENT = re.compile(
    r"""(?<![^\s\[{,:])("(?:\\.|[^"\\])*"|'(?:''|[^'])*')|(?:^|(?<=\s))#.*"""
)
_CONFIG_PATH = re.compile(r"NEUROSWARM_CONFIG[\"']?\s*[:=]\s*[\"']?(/[^\s\"',}\]]+)")


def read_text(file: Path) -> str:
    """The file without its comments; ConfigError if it cannot be read."""
    require_file("stack or compose file", file)
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{file} is no stack file: above {MAX_FILE_BYTES} bytes")
    lines = data.decode(errors="replace").splitlines()
    return "\n".join(_QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", line) for line in lines)


def require_file(what: str, file: Path) -> None:
    """ConfigError if there is no such file."""
    if not file.is_file():
        why = f"{file} is a folder" if file.is_dir() else f"there is no {file}"
        raise ConfigError(f"no {what}: {why} (`neuroswarm deploy files --to DIR` copies ours)")


def find_variables(texts: Sequence[str]) -> dict[str, bool]:
    """Variables that the files name, each with whether docker refuses the file without it."""
    found: dict[str, bool] = {}
    for match in _VARIABLE.finditer("\n".join(texts)):
        name = match["plain"] or match["name"]
        if name:
            found[name] = found.get(name, False) or match["must"] is not None
    return found


def require_given(
    variables: Mapping[str, bool], chosen: Mapping[str, object], environment: Mapping[str, str]
) -> None:
    """ConfigError if the files require a variable that nobody gave."""
    lacking = [
        name
        for name, is_required in variables.items()
        if is_required and name not in chosen and not environment.get(name)
    ]
    if lacking:
        raise ConfigError(
            f"the stack file requires {', '.join(lacking)} (add --variable {lacking[0]}=VALUE)"
        )


def find_settings(texts: Sequence[str], folder: Path, *, binds_here: bool = True) -> list[Path]:
    """Files of settings that nodes find where `NEUROSWARM_CONFIG` says: configs, bind mounts.

    Args:
        texts: The stack or compose files, joined by docker.
        folder: That of the first, from which docker takes paths.
        binds_here: Whether bind mounts are of this machine, as with compose, whose engine may yet
            be another's: absolute paths that are not here are left out. A stack's are of the
            machines that its nodes run on, so that only its configs are found.
    """
    text = "\n".join(texts)
    found: dict[str, None] = {}
    for path in dict.fromkeys(_CONFIG_PATH.findall(text)):
        for source in _find_sources(text, re.escape(path)):
            if not source.startswith((".", "/")):
                found |= dict.fromkeys(_find_config(text, re.escape(source)))
            elif binds_here and (source.startswith(".") or Path(source).exists()):
                found[source] = None
    return [folder / source for source in found if "$" not in source]


def _find_sources(text: str, path: str) -> list[str]:
    """What is mounted at the path (a pattern): names of configs, and paths of bind mounts."""
    word, end = r"[\"']?([^\s\"',{}\[\]]+)[\"']?", r"[\"']?(?=[\s,}\]]|$)"
    patterns = (
        rf"source:\s*{word}\s*,?\s*target:\s*[\"']?{path}{end}",
        rf"target:\s*[\"']?{path}[\"']?\s*,?\s*source:\s*{word}",
        rf"(?<=[\s\"'\[,])([./][^\s\"',:]*):{path}(?=[\s\"',:\]]|$)",
    )
    return [source for pattern in patterns for source in re.findall(pattern, text)]


def _find_config(text: str, name: str) -> list[str]:
    """Files that the config of this name (a pattern) is made of."""
    quoted = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,\"'{}]+)"
    pattern = rf"(?:^|\W){name}:\s*\{{?\s*(?:name:\s*{quoted}\s*,?\s*)?file:\s*[\"']?([^\s\"',}}]+)"
    return re.findall(pattern, text)
