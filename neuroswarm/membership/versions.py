"""Which protocol versions talk with each other: every one with the one before and the one after.

A node announces the newest version that it speaks, and it speaks that and the one before. Refuses
to know what differs between two versions.
"""

from __future__ import annotations


def agree(own: int, theirs: int) -> int | None:
    """The version that two nodes speak with each other, the lower one; None if there is none.

    Args:
        own: The version that this node announces, at least 1.
        theirs: The version that the other one announces.
    """
    return min(own, theirs) if abs(own - theirs) <= 1 else None


def explain(own: int, theirs: int) -> str:
    """Why two nodes cannot talk with each other, and which of them has to be upgraded."""
    behind = "this node" if theirs > own else "that one"
    return f"it speaks protocol {theirs}, this node {own}: upgrade {behind} (neighbours only talk)"
