"""Labels of a docker swarm's machines that the stack files read.

Refuses to know how a label is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

PREFIX: Final = "neuroswarm."
CLASS: Final = PREFIX + "class"
SKIP: Final = PREFIX + "skip"
TRACKER: Final = PREFIX + "tracker"


class NodeClass(StrEnum):
    """What kind of computer a machine is, for people; a node finds out for itself."""

    SERVER = "server"
    DESKTOP = "desktop"
    LAPTOP = "laptop"
    RPI = "rpi"


def choose_labels(
    node_class: NodeClass | None, *, is_skipped: bool | None, has_tracker: bool | None
) -> Mapping[str, str]:
    """Labels to set; None leaves one as it is.

    A switch that is off is set to `false` and not removed: removing a label that is not there is
    an error, and the stack files compare with `true`.
    """
    chosen = {
        CLASS: None if node_class is None else node_class.value,
        SKIP: _show(is_skipped),
        TRACKER: _show(has_tracker),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _show(switch: bool | None) -> str | None:
    return None if switch is None else str(switch).lower()
