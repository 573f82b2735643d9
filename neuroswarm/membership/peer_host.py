"""At which of its hosts a peer is reached: by what worked, not by what it says.

Refuses to try any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuroswarm.membership.addresses import is_local_only, is_same_host


def choose_host(
    announced: Sequence[str], *, seen: str | None, answered: str | None, failed: Sequence[str]
) -> str:
    """The host at which to reach a peer.

    Where it answered a call last, else the announced one where its own messages come from, else
    the first one announced, else where its messages come from though it does not say to be there.
    One at which a call failed since then comes after all others, the newest failure last.

    Args:
        announced: Hosts that it tells, best first; at least one.
        seen: Where its last own message came from; None if it is known by hearsay only.
        answered: Where it answered a call; None before the first.
        failed: Where calls failed since then, the newest last.
    """
    hosts = list(announced)
    if seen is not None and not any(is_same_host(seen, host) for host in announced):
        means_us = all(map(is_local_only, announced))
        if means_us and not is_local_only(seen):
            return seen
        if not means_us:
            hosts.append(seen)

    def rank(host: str) -> tuple[int, bool, bool, bool]:
        return (
            max((i for i, other in enumerate(failed, 1) if is_same_host(host, other)), default=0),
            not is_same_host(host, answered),
            host not in announced,
            not is_same_host(host, seen),
        )

    return min(hosts, key=rank)  # the first of equals
