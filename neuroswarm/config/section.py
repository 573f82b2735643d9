"""The base of all sections, and how a wrong setting is explained in one line.

Refuses to know which settings exist.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from neuroswarm.errors import ConfigError


class Section(BaseModel):
    """Base of all sections: closed, frozen, and refusing with `ConfigError` in one line."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    prefix: ClassVar[str] = ""

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(values, Mapping):
            values = cls.fold(values)
            for name in values.keys() - cls.model_fields.keys():
                raise ConfigError(unknown_setting(f"{cls.prefix}{name}", cls.setting_names()))
            for name, value in values.items():
                if value == "" and Path in get_args(cls.model_fields[name].annotation):
                    raise ConfigError(
                        f"{cls.prefix}{name}: {value!r} is no path (leave it out for the default)"
                    )
        try:
            return handler(values)
        except ValidationError as error:
            raise ConfigError(_first_complaint(cls.prefix, error)) from error

    @classmethod
    def fold(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values under the names of the fields; sections with other names override it."""
        return values

    @classmethod
    def setting_names(cls) -> list[str]:
        """The full names of the section's settings, like `heartbeat.interval_s`."""
        return [f"{cls.prefix}{name}" for name in cls.model_fields]


def split_list(value: object) -> object:
    """The parts of a text with commas, or of each text of a list; anything else as it is.

    A text of a list that has no part stays, so that it can be refused.
    """
    if isinstance(value, str):
        return _parts(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(part for text in value for part in _parts(text) or (text,))
    return value


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Say that `name` is no setting, and which of the known ones is nearest."""
    names = sorted(known)
    key = name.rpartition(".")[2]
    same_key = [full for full in names if full.rpartition(".")[2] == key]
    similar = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    near = similar or same_key if "." in name else same_key or similar
    if near:
        return f"unknown setting {name!r}; did you mean {near[0]!r}?"
    families = sorted({full.partition(".")[0] + "." for full in names if "." in full})
    return f"unknown setting {name!r}; settings start with {', '.join(families)}"


def _first_complaint(prefix: str, error: ValidationError) -> str:
    """The first of pydantic's complaints as `section.key: value (what it must be)`."""
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Value error, ")
    path = prefix + ".".join(str(step) for step in first["loc"])
    if first["type"] == "value_error":
        return f"{path.rstrip('.')}: {reason}" if path else reason
    if first["type"] == "model_type":
        return f"{path.rstrip('.')}: {first['input']!r} is not a table of settings"
    if first["type"] == "tuple_type":
        return f"{path}: {first['input']!r} (must be a list, or one text with commas)"
    return f"{path}: {first['input']!r} ({reason.replace('Input should', 'must', 1)})"
