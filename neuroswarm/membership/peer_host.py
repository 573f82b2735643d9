"""At which of its hosts a peer is reached: by what worked, not by what it says.

Refuses to try any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuroswarm.membership.addresses import is_local_only, is_same_host


def choose_host(
    announced: Sequence[str], *, seen: str | None, answered: str | None, failed: str | None
) -> str:
    """The host at which to reach a peer.

    Where it answered a call last, else where its own messages come from, else the first; one at
    which the newest call failed comes after all others.

    Args:
        announced: Hosts that it tells, best first; at least one.
        seen: Where its last own message came from; None if it is known by hearsay only. It is
            taken although it was not announced if all that were mean this machine to us.
        answered: At which of them it answered a call; None before the first.
        failed: At which of them a call failed since then; None if none did.
    """
    if seen is not None and not is_local_only(seen) and all(map(is_local_only, announced)):
        return seen

    def rank(host: str) -> tuple[bool, bool, bool]:
        return (
            is_same_host(host, failed),
            not is_same_host(host, answered),
            not is_same_host(host, seen),
        )

    return min(announced, key=rank)  # the first of equals
