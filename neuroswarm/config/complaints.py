"""What is said of a setting that cannot be: an unknown name, an empty text, a wrong type or unit.

One line each, which names the setting and what to write. Refuses to know which settings exist.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

_UNITS = {"s": "seconds", "ms": "milliseconds", "mb": "MB", "mbit": "Mbit/s"}
"""By the last part of a setting's name."""

_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEGABYTES = {"kb": 1e-3, "mb": 1.0, "mib": 1.048576, "gb": 1e3, "gib": 1073.741824, "tb": 1e6}
_IN_UNITS = {
    "s": _SECONDS,
    "ms": {unit: 1000 * seconds for unit, seconds in _SECONDS.items()},
    "mb": _MEGABYTES,
    "mbit": {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "mbps": 1.0, "gbps": 1e3},
}
_MEASURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)(?:/s)?\s*")

_ELSEWHERE = {
    "learning_rate": "lr",
    "seq_len": "context",
    "block_size": "context",
    "hidden_size": "dim",
    "n_layer": "num_layers",
    "n_head": "num_heads",
}
"""What other programs call a key, and its name here."""

_TOKEN = frozenset({"token", "swarm_token", "node_token", "network.token"})


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Say that `name` is no setting, and which of the known ones is nearest."""
    if name in _TOKEN:
        return (
            f"{name!r} is no setting, so that no secret stands in a file of settings: put the "
            "swarm's token in a file of its own and name that in network.token_file"
        )
    names = sorted(known)
    section, dot, key = name.rpartition(".")
    same_key = [full for full in names if full.rpartition(".")[2] == key]
    here = f"{section}{dot}{_ELSEWHERE.get(key, key)}"
    similar = [here] if here in names else difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    near = similar or same_key if "." in name else same_key or similar
    if near:
        return f"unknown setting {name!r}; did you mean {near[0]!r}?{_say_unit(name, near[0])}"
    families = sorted({full.partition(".")[0] + "." for full in names if "." in full})
    return f"unknown setting {name!r}; settings start with {', '.join(families)}"


def find_no_value(path: str, value: object, field: FieldInfo) -> str | None:
    """Why a value stands for nothing: an empty text, or a yes or no where a number belongs."""
    items = value if isinstance(value, list | tuple) else [value]
    kinds = set(get_args(field.annotation) or (field.annotation,)) - {NoneType}
    if any(isinstance(item, str) and not item.strip() for item in items) and field.default != "":
        what = "path" if Path in kinds else "value"
        return f"{path}: {value!r} is no {what} (leave it out for the default)"
    if isinstance(value, bool) and kinds <= {int, float}:
        return f"{path}: {str(value).lower()} is no number"
    return None


def first_complaint(prefix: str, error: ValidationError) -> str:
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
    if first["type"] in ("float_parsing", "int_parsing", "float_type", "int_type"):
        return f"{path}: {first['input']!r} ({_say_number(path, first['input'], first['type'])})"
    if first["type"] == "path_type":
        return f"{path}: {first['input']!r} (must be a path, in quotes)"
    if first["type"] in ("bool_parsing", "bool_type"):
        return f"{path}: {first['input']!r} (must be true or false)"
    return f"{path}: {first['input']!r} ({reason.replace('Input should', 'must', 1)})"


def _say_number(path: str, value: object, kind: str) -> str:
    unit = path.rpartition("_")[2]
    noun = "a whole number" if kind.startswith("int") else "a number"
    must = f"must be {noun}{f' of {_UNITS[unit]}' if unit in _UNITS else ''}, without a unit"
    measure = _MEASURE.fullmatch(value) if isinstance(value, str) else None
    factor = measure and _IN_UNITS.get(unit, {}).get(measure[2].lower())
    if not measure or factor is None:
        return must if unit in _UNITS else f"must be {noun}"
    return f"{must}: write {round(float(measure[1]) * factor, 6):.15g}"


def _say_unit(given: str, near: str) -> str:
    """The unit, where the name differs in nothing else."""
    unit = near.rpartition("_")[2]
    is_same = given.rpartition("_")[0] == near.rpartition("_")[0] or given == near[: -len(unit) - 1]
    return f" (in {_UNITS[unit]})" if unit in _UNITS and is_same else ""
