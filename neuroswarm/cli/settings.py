"""Merging of settings: flags over environment over file over defaults.

Reads nothing itself but the TOML file it is given; what a setting means is in `config`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroswarm.config.complaints import unknown_setting
from neuroswarm.config.flat import FLAT_PATHS, fold_flat_names
from neuroswarm.config.swarm_node import SwarmNodeConfig
from neuroswarm.errors import ConfigError

PREFIX = "NEUROSWARM_"

SHORT_NAMES: Mapping[str, str] = {
    "tracker": "network.trackers",
    "peer": "network.peers",
    "port": "network.port",
    "grpc_port": "network.grpc_port",
    "heartbeat_port": "heartbeat.port",
    "host": "network.host",
    "announce": "network.announce_host",
    "name": "network.name",
    "http_open": "network.http_open",
    "max_upload": "metering.max_upload_bytes_per_s",
    "data_cap": "metering.data_caps",
    "owner": "network.owner",
    "accept_token_file": "network.accepted_token_files",
    "state_dir": "state_dir",
    "data": "data.path",
    "model": "training.model",
    "base": "lora.base",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "lora_targets": "lora.targets",
    "lora_train_a": "lora.train_a",
    "lora_dropout": "lora.dropout",
    "hours": "guest.hours",
    "cpu_share": "guest.cpu_share",
    "rounds": "run.rounds",
    "minutes": "run.minutes",
    "tokens": "run.tokens",
    "until_loss": "run.until_loss",
    "fresh": "run.fresh",
}
"""Settings that have a flag of their own, by the flag's name; `NEUROSWARM_<NAME>` sets them too."""

NOT_SETTINGS = frozenset(
    PREFIX + name
    for name in ("TOKEN", "TOKEN_FILE", "CONFIG", "LOG_LEVEL", "LOG_FORMAT", "JOIN_TOKEN")
)
"""Variables that are read elsewhere in `cli`."""


@dataclass(frozen=True)
class Layer:
    """Settings from one place, by their path `section.key`, each with where it was said."""

    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The merged settings, and where each one that is not a default comes from."""

    config: SwarmNodeConfig
    origins: Mapping[str, str]

    def asked(self, path: str) -> Any | None:
        """The value of a setting that somebody gave; None if it is the default."""
        if path not in self.origins:
            return None
        value: Any = self.config
        for name in path.split("."):
            value = getattr(value, name)
        return value


def resolve(layers: Iterable[Layer]) -> Settings:
    """Merge layers, the later over the earlier.

    Raises:
        ConfigError: a value is not legal; the message names the setting and who set it.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        values.update(layer.values)
        origins.update(layer.origins)
    try:
        return Settings(SwarmNodeConfig.model_validate(_nested(values)), origins)
    except ConfigError as error:
        setting = ".".join(str(error).partition(":")[0].split(".")[:2])  # without an item's number
        where = f", set by {origins[setting]}" if setting in origins else ""
        raise ConfigError(f"{error}{where}") from error


def from_file(path: Path) -> Layer:
    """Read a TOML file with the sections as tables; flat names may stand at its top.

    Raises:
        ConfigError: it cannot be read, is not TOML, or has a key that is no setting.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    values: dict[str, Any] = {}
    for name, value in fold_flat_names(document).items():
        if isinstance(value, Mapping):
            values |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name in section_names():
            raise ConfigError(f"{path}: {name}: {value!r} is not a table of settings")
        else:
            values[name] = value
    for path_ in values:
        if path_ not in setting_paths():
            raise ConfigError(f"{path}: {unknown_setting(path_, SwarmNodeConfig.setting_names())}")
    return Layer(values, dict.fromkeys(values, str(path)))


def from_environment(environment: Mapping[str, str]) -> Layer:
    """Read `NEUROSWARM_SECTION_KEY`, flat and short names; empty variables count as unset.

    Raises:
        ConfigError: a variable with the prefix is no setting, or two say the same one.
    """
    known = {PREFIX + name.replace(".", "_").upper(): name for name in setting_paths()}
    known |= {PREFIX + name.upper(): path for name, path in FLAT_PATHS.items()}
    known |= {PREFIX + name.upper(): path for name, path in SHORT_NAMES.items()}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not text:
            continue
        if variable not in known:
            raise ConfigError(_unknown_variable(variable, [*known, *NOT_SETTINGS]))
        path = known[variable]
        if path in values:
            raise ConfigError(f"{origins[path]} and {variable} set the same thing: keep one")
        values[path], origins[path] = text, variable
    return Layer(values, origins)


def from_assignments(assignments: Iterable[str]) -> Layer:
    """Read `section.key=value` texts, as `--set` takes them; flat names may be used.

    Of two for one setting the later holds, so that a script's can be added to.

    Raises:
        ConfigError: one has no `=`, or names no setting.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        name = name.strip()
        if not separator:
            raise ConfigError(f"--set {assignment}: write --set section.key=value")
        path = FLAT_PATHS.get(name, name)
        if name in section_names():
            raise ConfigError(f"--set {assignment}: {name!r} is a section; write {name}.key=value")
        if path not in setting_paths():
            raise ConfigError(f"--set: {unknown_setting(name, SwarmNodeConfig.setting_names())}")
        values[path] = text.strip()
    return Layer(values, dict.fromkeys(values, "--set"))


def from_flags(flags: Mapping[str, Any]) -> Layer:
    """Take the flags that were given: those that are not None, not False and no empty sequence.

    What a repeatable flag is that was not given, an empty list or tuple, depends on the version
    of the command line's library.

    Raises:
        ConfigError: a flag was given without a value, as by a shell's variable that is unset.
    """
    given = {n: v for n, v in flags.items() if v is not None and v is not False}
    given = {n: v for n, v in given.items() if not isinstance(v, list | tuple) or v}
    for name, value in given.items():
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{SHORT_NAMES[name]}: {flag} is given without a value (is a variable unset? "
                f"leave {flag} out for the default)"
            )
    return Layer(
        {SHORT_NAMES[name]: value for name, value in given.items()},
        {SHORT_NAMES[name]: f"--{name.replace('_', '-')}" for name in given},
    )


def require_one_place(layers: Iterable[Layer]) -> None:
    """ConfigError if two of these layers, of equal rank, set the same thing."""
    origins: dict[str, str] = {}
    for layer in layers:
        for path in layer.values.keys() & origins.keys():
            raise ConfigError(
                f"{path}: {origins[path]} and {layer.origins[path]} set the same thing: keep one"
            )
        origins.update(layer.origins)


def from_values(values: Mapping[str, Any], origin: str) -> Layer:
    """Settings by path that the command itself decides."""
    return Layer(dict(values), dict.fromkeys(values, origin))


def setting_paths() -> frozenset[str]:
    """Every setting as `section.key`, or its plain name outside the sections."""
    names = set(SwarmNodeConfig.setting_names()) - FLAT_PATHS.keys()
    return frozenset(names - section_names())


def section_names() -> frozenset[str]:
    """The names of the sections."""
    names = SwarmNodeConfig.setting_names()
    return frozenset(name.partition(".")[0] for name in names if "." in name)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        section, dot, key = path.partition(".")
        if dot:
            nested.setdefault(section, {})[key] = value
        else:
            nested[path] = value
    return nested


def _unknown_variable(variable: str, known: Iterable[str]) -> str:
    names = sorted(name.removeprefix(PREFIX) for name in known)
    near = difflib.get_close_matches(variable.removeprefix(PREFIX), names, n=1)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else "see docs/configuration.md"
    return f"environment variable {variable} is no setting; {hint}"
