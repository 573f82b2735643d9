"""The base of all sections: closed, frozen, and refusing what is wrong in one line.

Refuses to know which settings exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from neuroswarm.config.complaints import find_no_value, first_complaint, unknown_setting
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
                complaint = find_no_value(f"{cls.prefix}{name}", value, cls.model_fields[name])
                if complaint:
                    raise ConfigError(complaint)
        try:
            return handler(values)
        except ValidationError as error:
            raise ConfigError(first_complaint(cls.prefix, error)) from error

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
