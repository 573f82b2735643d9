"""The reference of all settings as Markdown, written from the sections themselves.

`make docs` writes it to docs/configuration.md; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf
from pydantic.fields import FieldInfo

from neuroswarm.config.flat import FLAT_PATHS
from neuroswarm.config.section import Section
from neuroswarm.config.swarm_node import SwarmNodeConfig

_INTRODUCTION = """\
# Configuration

<!-- Written by `make docs` from neuroswarm/config; change the sections there. -->

Every setting can be given in four ways; a later one wins:

1. its default, below;
2. a TOML file (`neuroswarm node --config FILE`), with the sections as tables:
   `[diloco]`, then `inner_steps = 100`;
3. an environment variable: `NEUROSWARM_DILOCO_INNER_STEPS=100`; an empty one counts as unset;
4. a flag: its own, if it has one (`neuroswarm node --help`), or `--set diloco.inner_steps=100`.

`neuroswarm config init` writes a file with all of them as comments, `neuroswarm config check FILE`
says what is wrong with one, and `neuroswarm config show --origin`, with the flags of
`neuroswarm node`, which value each setting has and where it comes from.

From Python: `SwarmNodeConfig(diloco={"inner_steps": 100})`. Some settings have a flat name too,
which all four ways and Python accept: `SwarmNodeConfig(diloco_inner_steps=100)`.

An unknown setting is an error that names the nearest one, and so is an empty text: what is to have
its default is left out. Durations are seconds unless the name says otherwise, and numbers have no
units. The swarm token is no setting: `--token-file`, `NEUROSWARM_TOKEN_FILE`, or `--token` and
`NEUROSWARM_TOKEN`; only `network.token_file` may stand in a file.

The sections `diloco` and `aggregation`, and of `training` the optimiser, learning rate and its
schedule (`optimizer` to `lr_floor`), are the rules of a *new* swarm. Whoever joins a swarm adopts
its rules, whatever the node's own settings say, and reports the difference.
"""

_FLAT_NAMES = {path: name for name, path in FLAT_PATHS.items()}
_RULES = {
    Gt: "> {0.gt}",
    Ge: ">= {0.ge}",
    Lt: "< {0.lt}",
    Le: "<= {0.le}",
    MultipleOf: "multiple of {0.multiple_of}",
    MinLen: "at least {0.min_length} long",
    MaxLen: "at most {0.max_length} long",
}


def render_reference() -> str:
    """The whole page."""
    outside: dict[str, FieldInfo] = {}
    tables: list[str] = []
    for name, field in SwarmNodeConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            tables += [f"## `[{name}]`\n", f"{section.__doc__}\n"]
            tables += _table(section.model_fields, section.prefix)
        else:
            outside[name] = field
    lines = [_INTRODUCTION, "## Outside the sections\n", *_table(outside, ""), *tables]
    return "\n".join(lines).rstrip() + "\n"


def _table(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[str]:
    yield "| setting | default | legal | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        path = f"{prefix}{name}"
        meaning = " ".join((field.description or "").split())
        if path in _FLAT_NAMES:
            meaning += f" Flat name: `{_FLAT_NAMES[path]}`."
        yield f"| `{path}` | {_default(field)} | {legal_values(field)} | {meaning} |"
    yield ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value in ((), ""):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def legal_values(field: FieldInfo) -> str:
    """What a setting may be, for people, in Markdown."""
    annotation = annotation_if_set(field)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of texts"
    words = {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}
    words |= {Path: "path"}
    kind = words[annotation]
    limits = [_RULES[type(rule)].format(rule) for rule in field.metadata if type(rule) in _RULES]
    return " ".join([kind, ", ".join(limits)]).strip()


def annotation_if_set(field: FieldInfo) -> Any:
    """What a setting may be but for None."""
    if get_origin(field.annotation) not in (UnionType, Union):
        return field.annotation
    (kind,) = (kind for kind in get_args(field.annotation) if kind is not NoneType)
    return kind


if __name__ == "__main__":
    sys.stdout.write(render_reference())
