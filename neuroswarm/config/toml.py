"""Settings as TOML: a commented file to begin with, and those of a node with their origins.

Knows nothing of files and flags; `tomllib` reads what is written here.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping

from pydantic.fields import FieldInfo

from neuroswarm.config.reference import legal_values
from neuroswarm.config.section import Section
from neuroswarm.config.swarm_node import SwarmNodeConfig

WIDTH = 100

_HEAD = """\
# Settings of `neuroswarm node --config FILE`. Every line here is a comment and shows a default:
# take the "# " away before what you want to change. Flags and NEUROSWARM_* variables go before
# this file. Check it with `neuroswarm config check FILE`.
#
# The sections diloco and aggregation, and the optimiser and learning rate of training, are the
# rules of a swarm that this node starts; whoever joins a swarm adopts its rules.
#
# The swarm's token is no setting: keep it in a file that only the node's user can read, and name
# that file in network.token_file.
"""


def render_template() -> str:
    """A file with every setting as a comment: what it means, what is legal, its default."""
    lines = [_HEAD]
    for section, docstring, fields in _sections():
        lines.append(f"\n# {docstring}\n[{section}]\n" if section else "")
        for name, field in fields.items():
            meaning = " ".join((field.description or "").split())
            lines += textwrap.wrap(
                f"{meaning} ({legal_values(field).replace('`', '')})",
                WIDTH,
                initial_indent="# ",
                subsequent_indent="# ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            shown = show_value(field.default)
            lines.append(f"# {name} = {shown}\n" if shown else f"# {name} is unset\n")
    return "\n".join(lines).rstrip() + "\n"


def render_settings(
    config: SwarmNodeConfig,
    say: Callable[[str], str],
    *,
    takes: Callable[[str], bool] = lambda _path: True,
) -> str:
    """The settings of a node, as a file that gives the same ones again.

    Args:
        config: The settings.
        say: What to write behind a setting, by its path `section.key`; may be empty.
        takes: Which settings to write.
    """
    lines: list[str] = []
    for section, _, fields in _sections():
        values = getattr(config, section) if section else config
        prefix = f"{section}." if section else ""
        taken = [name for name in fields if takes(prefix + name)]
        if taken and section:
            lines += ["", f"[{section}]"]
        for name in taken:
            shown = show_value(getattr(values, name))
            line = f"{name} = {shown}" if shown else f"# {name} is unset"
            remark = say(prefix + name)
            lines.append(f"{line:<48}# {remark}" if remark else line)
    return "\n".join(lines).lstrip("\n") + "\n"


def show_value(value: object) -> str:
    """A value as TOML; empty for what is unset, which TOML has no word for."""
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show_value, value))}]"
    text = str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _sections() -> Iterator[tuple[str, str, Mapping[str, FieldInfo]]]:
    """Name, meaning and settings of each; first those outside, which TOML has at its top."""
    outside: dict[str, FieldInfo] = {}
    inside: list[tuple[str, str, Mapping[str, FieldInfo]]] = []
    for name, field in SwarmNodeConfig.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            inside.append((name, str(kind.__doc__), kind.model_fields))
        else:
            outside[name] = field
    yield "", "", outside
    yield from inside
