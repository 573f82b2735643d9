"""What was meant by a command or flag that there is not: named only where it is near.

Refuses to know the commands.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup

NEARNESS = 0.7
"""From 0 to 1 (difflib's ratio): `labl` has 0.89 of `label`, `iint` 0.75 of `init`; difflib's own
limit of 0.6 offers `logs` (0.67) for `bogus`."""


def find_near(word: str, names: Iterable[str]) -> list[str]:
    """Names near enough to the word, the nearest first; leading dashes make nothing alike."""
    by_core = {name.lstrip("-"): name for name in names}
    near = difflib.get_close_matches(word.lstrip("-"), by_core, cutoff=NEARNESS)
    return [by_core[core] for core in near]


class Commands(TyperGroup):
    """A group of commands that offers near ones for one that it does not have."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; a usage error, with what is near, if none is."""
        word = args[0]
        is_unknown = self.get_command(ctx, word) is None and not word.startswith("-")
        if is_unknown and not ctx.resilient_parsing:
            near = ", ".join(repr(name) for name in find_near(word, self.list_commands(ctx)))
            ctx.fail(f"No such command {word!r}." + (f" Did you mean {near}?" if near else ""))
        return super().resolve_command(ctx, args)
