"""What a unit's node is started with, so that it has the settings that were typed.

Flags, variables and paths hold where they were typed only: a unit has another environment and
another folder. Here all become flags with whole paths. Refuses to know what is at the paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroswarm.errors import ConfigError

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings
    from neuroswarm.config import SwarmNodeConfig

TOKEN_FILE, STATE_DIR = "network.token_file", "state_dir"
ACCEPTED = "network.accepted_token_files"
CONFIG_VARIABLE = "NEUROSWARM_CONFIG"

_ELSEWHERE = ("config", "token", "token_file", "state_dir")
"""Flags that the unit writes itself."""


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed, for a unit; every path is whole."""

    flags: tuple[str, ...]
    """Of the node, without those that the unit writes itself."""
    config: SwarmNodeConfig
    """What a node with these flags has."""
    file: Path | None
    token_file: Path | None
    accepted: tuple[Path, ...]
    """Files of accepted tokens that the unit hands over; none if flags or the file name them."""
    state_dir: Path | None


def read_typed(
    arguments: Sequence[str],
    places: Mapping[str, Path | None],
    environment: Mapping[str, str],
    *,
    is_user: bool,
) -> Typed:
    """Read what was typed as `neuroswarm node` would, here and now.

    Args:
        arguments: Flags of the node.
        places: Values of `--config` (or the file at the usual place), `--token-file` and
            `--state-dir`, by the flags' names as Python has them.
        environment: Of this shell.
        is_user: Whether the unit is one of the user who calls.

    Raises:
        ConfigError: the node would refuse it, it would lay a secret open, or every restart would
            do again what is to be done once.
        AdmissionError: a token is missing where one was named, or malformed.
    """
    from neuroswarm.cli.config import merge, parse_node_flags

    context = parse_node_flags(list(arguments), "neuroswarm service install")
    if context.params.get("token") is not None:
        raise ConfigError("--token would be for all to read in the unit: give --token-file")
    parameters = {**context.params, **places}
    merged = merge(parameters, environment)
    _require_repeatable(merged)
    file = places["config"]
    carried = _find_carried(merged, file, is_user=is_user)
    flags = [*_render_flags(context, carried), *_render_variables(merged, environment, carried)]
    _require_whole(merged, file, carried, is_user=is_user)
    given = merged.config
    return Typed(
        tuple(flags),
        merge({**parse_node_flags(flags, "neuroswarm node").params, "config": file}, {}).config,
        file,
        _find_token_file(places["token_file"], environment, given.network.token_file),
        _whole(given.network.accepted_token_files) if ACCEPTED in carried else (),
        next(iter(_whole((given.state_dir,))), None) if STATE_DIR in carried else None,
    )


def _require_repeatable(merged: Settings) -> None:
    if merged.config.run.fresh:
        raise ConfigError(
            f"run.fresh, set by {merged.origins['run.fresh']}: every restart of the service would "
            "put the state aside and begin anew (leave it out; to begin anew once, stop the "
            "service and remove its state folder, or start `neuroswarm node --fresh` once by hand "
            "with the same --state-dir)"
        )


def _find_carried(merged: Settings, file: Path | None, *, is_user: bool) -> frozenset[str]:
    """The settings that the unit hands over itself, wherever they were typed."""
    if not is_user:  # the manager knows the folder, and reads the secrets as root
        return frozenset((TOKEN_FILE, STATE_DIR, ACCEPTED))
    in_file = file is not None and merged.origins.get(STATE_DIR) == str(file)
    return frozenset((TOKEN_FILE,) if in_file else (TOKEN_FILE, STATE_DIR))


def _render_flags(context: Any, carried: frozenset[str]) -> Iterator[str]:
    """The flags that were given, as they would be typed anywhere."""
    from neuroswarm.cli.settings import SHORT_NAMES

    for flag in context.command.params:
        value, setting = context.params[flag.name], SHORT_NAMES.get(flag.name, "")
        if flag.name in _ELSEWHERE or setting in carried or value == flag.default:
            continue
        for item in value if isinstance(value, list | tuple) else (value,):
            if flag.name == "assignments":
                yield from _render_assignment(str(item), carried)
            elif item is not None and item is not False:
                yield from (flag.opts[0], *(() if item is True else (_text(setting, item),)))


def _render_assignment(assignment: str, carried: frozenset[str]) -> Iterator[str]:
    from neuroswarm.config.flat import FLAT_PATHS
    from neuroswarm.config.setting_paths import make_text_whole

    name, _, text = assignment.partition("=")
    setting = FLAT_PATHS.get(name.strip(), name.strip())
    if setting not in carried:
        yield from ("--set", f"{setting}={make_text_whole(setting, text.strip())}")


def _render_variables(
    merged: Settings, environment: Mapping[str, str], carried: frozenset[str]
) -> Iterator[str]:
    """The variables that count, as flags."""
    from neuroswarm.cli.settings import from_environment
    from neuroswarm.config.setting_paths import make_text_whole

    layer = from_environment(environment)
    for setting, text in layer.values.items():
        if merged.origins[setting] == layer.origins[setting] and setting not in carried:
            yield from ("--set", f"{setting}={make_text_whole(setting, text)}")


def _text(setting: str, item: object) -> str:
    from neuroswarm.config.setting_paths import make_text_whole, make_whole

    return str(make_whole(item)) if isinstance(item, Path) else make_text_whole(setting, str(item))


def _require_whole(
    merged: Settings, file: Path | None, carried: frozenset[str], *, is_user: bool
) -> None:
    """ConfigError if the file has a path that stands for another one in the unit."""
    from neuroswarm.config.setting_paths import find_paths

    for setting, paths in find_paths(merged.config).items():
        if setting in carried or file is None or merged.origins.get(setting) != str(file):
            continue
        for path in paths:
            is_home = str(path).startswith("~")
            if not path.is_absolute() and not (is_user and is_home):
                why = "whose home is another" if is_home else "which has no working folder"
                raise ConfigError(
                    f"{setting}: {path} in {file} would be another place for the service, {why}: "
                    "write the whole path"
                )


def _find_token_file(
    flag: Path | None, environment: Mapping[str, str], configured: Path | None
) -> Path | None:
    """The file with the token that a node would use here, or None if its swarm is open."""
    from neuroswarm.cli.swarm_token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, find_token

    if find_token(None, flag, environment, configured) is None:
        return None
    if flag is None and environment.get(TOKEN_VARIABLE, "").strip():
        raise ConfigError(
            f"{TOKEN_VARIABLE} would be for all to read in the unit: put the token in a file that "
            "you alone can read and give --token-file"
        )
    named = environment.get(TOKEN_FILE_VARIABLE, "").strip()
    found = flag or (Path(named) if named else configured)
    return next(iter(_whole((found,))), None)


def _whole(paths: Sequence[Path | None]) -> tuple[Path, ...]:
    from neuroswarm.config.setting_paths import make_whole

    return tuple(make_whole(path) for path in paths if path is not None)
