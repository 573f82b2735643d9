"""What the join benchmark promises, and whether what was measured holds it.

Pure functions of what nodes wrote down; times are those of one wall clock, in seconds.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from neuroswarm.bench.join_transfer import Transfer
from neuroswarm.bench.promise import Promise
from neuroswarm.demo.events import Committed, Published

MAX_TRANSFER_RATIO = 1.2
MAX_FETCHED_RATIO = 1.2
MAX_SLOWDOWN = 1.5
SLACK_S = 2.0
"""What rounds may take longer on top, as they wait for whole seconds."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One joiner, from its start to its first agreed contribution."""

    state_bytes: int
    bandwidth_mbit: float
    fetched_bytes: int
    physical_s: float
    """State bytes over the bandwidth of the joiner's link."""
    peers_s: float
    """From its start (without the import of libraries) until it heard of a peer with a state."""
    state_s: float
    """From its start until it held the state."""
    transfer_ratio: float
    """From peers to state, over `physical_s`."""
    fetched_ratio: float
    num_donors: int
    """Donors that it was seen to fetch from."""
    takes_part_s: float
    """From its start until the round began in which its first contribution was agreed, or until
    it held the state if that came later."""
    agreed_s: float
    """From its start until that round ended."""
    rounds_waited: int
    """Rounds that began after it held the state and before the one it contributed to; promised
    is 0."""
    round_before_s: float
    """Median round of the others before it came."""
    round_during_s: float | None
    """Median round of the others that ended while it joined."""
    peak_mb: int
    """Of the largest process."""


def measure(
    milestones: Sequence[Mapping[str, Any]],
    rounds: Sequence[Committed],
    published: Sequence[Published],
    *,
    bandwidth_mbit: float,
    peak_mb: int,
) -> Joined:
    """Put together what one joiner did.

    Args:
        milestones: What the joiner wrote down.
        rounds: Commits of a node that was there all the time, in order.
        published: Publications of the joiner.
        bandwidth_mbit: Of its link.
        peak_mb: Memory of the largest process.

    Raises:
        ValueError: it never contributed.
    """
    at = {line["what"]: line["time"] for line in reversed(milestones)}
    state = next(line for line in milestones if line["what"] == "state")
    donors = {d for line in milestones if line["what"] == "progress" for d in line["donors"]}
    first = next((c for c in rounds if state["node_id"] in c.signers), None)
    if first is None or not published:
        raise ValueError("the joiner's contributions were never agreed")
    index = rounds.index(first)
    began_at = rounds[index - 1].time
    later = [c.time for c in rounds if at["state"] < c.time < began_at]
    lengths = [(b.time, b.time - a.time) for a, b in itertools.pairwise(rounds)]
    before = [s for ended_at, s in lengths if ended_at <= at["started"]]
    during = [s for ended_at, s in lengths if at["started"] < ended_at <= first.time]
    physical_s = 8 * state["state_bytes"] / (1e6 * bandwidth_mbit)
    return Joined(
        state_bytes=state["state_bytes"],
        bandwidth_mbit=bandwidth_mbit,
        fetched_bytes=state["bytes_fetched"],
        physical_s=physical_s,
        peers_s=at["peers"] - at["started"],
        state_s=at["state"] - at["started"],
        transfer_ratio=(at["state"] - at["peers"]) / physical_s,
        fetched_ratio=state["bytes_fetched"] / state["state_bytes"],
        num_donors=len(donors),
        takes_part_s=max(began_at, at["state"]) - at["started"],
        agreed_s=first.time - at["started"],
        rounds_waited=len(later),
        round_before_s=statistics.median(before),
        round_during_s=statistics.median(during) if during else None,
        peak_mb=peak_mb,
    )


def check_transfer(name: str, moved: Transfer) -> list[Promise]:
    """What was promised of a transfer alone, and whether it holds."""
    ratio, fetched = moved.seconds / moved.physical_s, moved.fetched_bytes / moved.state_bytes
    return _of_transfer(name, ratio, fetched)


def check(name: str, joined: Joined, *, is_disturbed: bool) -> list[Promise]:
    """What was promised of a joiner, and whether it holds.

    Args:
        name: Of the case.
        joined: What was measured.
        is_disturbed: A donor was killed: the others' rounds have reason to take longer.
    """
    j = joined
    limit_s = j.round_before_s + MAX_TRANSFER_RATIO * j.physical_s + j.peers_s
    promises = [
        *_of_transfer(name, j.transfer_ratio, j.fetched_ratio),
        Promise(
            f"{name}: contributes",
            j.rounds_waited == 0 or j.takes_part_s <= limit_s,
            f"{name}: takes part from {j.takes_part_s:.1f} s on, {j.rounds_waited} rounds after "
            f"the next (promised: the next, or {limit_s:.1f} s)",
        ),
    ]
    if j.round_during_s is not None and not is_disturbed:
        bound_s = MAX_SLOWDOWN * j.round_before_s + SLACK_S
        promises.append(
            Promise(
                f"{name}: others",
                j.round_during_s <= bound_s,
                f"{name}: rounds of the others took {j.round_during_s:.1f} s while it joined, "
                f"{j.round_before_s:.1f} s before (promised: at most {bound_s:.1f})",
            )
        )
    return promises


def _of_transfer(name: str, ratio: float, fetched: float) -> list[Promise]:
    return [
        Promise(
            f"{name}: transfer",
            ratio <= MAX_TRANSFER_RATIO,
            f"{name}: the state took {ratio:.2f} x what the link allows "
            f"(promised: {MAX_TRANSFER_RATIO})",
        ),
        Promise(
            f"{name}: fetched",
            fetched <= MAX_FETCHED_RATIO,
            f"{name}: {fetched:.2f} x the state was fetched (promised: {MAX_FETCHED_RATIO})",
        ),
    ]


def to_json(joined: Joined) -> dict[str, Any]:
    """As JSON values, rounded."""
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(joined).items()}
