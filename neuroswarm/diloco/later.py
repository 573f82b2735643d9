"""Rules that came after others: what programs do that do not know them.

A swarm's rules are bytes that old and new programs hash alike. So a rule that came later has, in
bytes that do not name it, the value by which programs acted before it existed, and is not named
where it has that value. Knows no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Later:
    """Marks a field of the rules: `bucket_size: Annotated[int, Later(since=3, before=1)] = 4`."""

    since: int
    """Protocol version that brought the rule, at least 2."""
    before: Any
    """JSON value by which all act that do not know it; the field's default is for new swarms."""


def find_later(fields: Mapping[str, FieldInfo]) -> dict[str, Later]:
    """The fields that came later, by name."""
    return {
        name: mark
        for name, field in fields.items()
        for mark in field.metadata
        if isinstance(mark, Later)
    }
