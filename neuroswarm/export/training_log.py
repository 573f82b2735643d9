"""What a node's event log tells of how a state came about.

Says only what is written there; a log that does not lead to the state is not believed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroswarm.errors import CheckpointCorrupt
from neuroswarm.export.source import Source
from neuroswarm.rounds.history import History


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """The commits that led to a state, as one node logged them."""

    first_round: int = 0
    """Of the earliest state in the log; states before it are not known."""
    last_round: int = 0
    """Of the latest one; a node that is stopped may not come to log its last."""
    num_rounds: int = 0
    num_empty: int = 0
    """Rounds in which nobody contributed."""
    contributions: Mapping[str, int] = field(default_factory=dict)
    """Agreed contributions by node id in hex."""
    first_loss: tuple[int, float] | None = None
    """Round and held-out loss, nats, of the earliest state that was measured."""
    last_loss: tuple[int, float] | None = None
    num_tokens: int | None = None
    """Tokens that the node itself had trained on at the last commit."""
    began_at: float | None = None
    """Unix time of the first commit and of the last."""
    ended_at: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the log tells anything."""
        return self.num_rounds > 0


def read_log(source: Source) -> TrainingLog:
    """Read the logs beside a state; `TrainingLog()` if there are none, or they lead elsewhere."""
    commits = _follow(_read_events(source.event_logs))
    lineage = _read_lineage(source)
    leading = [n for n, event in commits.items() if lineage.get(n) == event["digest"]]
    chain = [commits[number] for number in sorted(commits) if number <= max(leading, default=-1)]
    if not chain:
        return TrainingLog()
    signers = Counter(str(signer) for event in chain for signer in event["signers"])
    losses = [
        (int(event["round"]), float(event["held_out_loss"]))
        for event in chain
        if event.get("held_out_loss") is not None
    ]
    return TrainingLog(
        first_round=int(chain[0]["round"]),
        last_round=int(chain[-1]["round"]),
        num_rounds=len(chain),
        num_empty=sum(not event["signers"] and not event["is_download"] for event in chain),
        contributions=dict(sorted(signers.items())),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        num_tokens=chain[-1].get("total_tokens"),
        began_at=chain[0].get("time"),
        ended_at=chain[-1].get("time"),
    )


def _read_lineage(source: Source) -> dict[int, str]:
    """Digests of the states that led to this one, as far as they lie beside it, and its own."""
    state = source.state
    try:
        lineage = History.from_json(source.meta["history"], state.round, state.digest)
    except (KeyError, CheckpointCorrupt):
        lineage = History(state.round, state.digest)
    before = lineage.digests_before(state.round)
    return {state.round: state.digest.hex(), **{n: digest.hex() for n, digest in before.items()}}


def _follow(events: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The commits by round; those of a lineage that was given up are left out."""
    commits: dict[int, Mapping[str, Any]] = {}
    for event in events:
        if event.get("event") != "commit":
            continue
        number = int(event["round"])
        if event.get("is_repair"):
            kept = 0 if event.get("is_download") else number
            commits = {at: known for at, known in commits.items() if at < kept}
        commits[number] = event
    return commits


def _read_events(paths: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """All whole lines; a running node may be writing the last one."""
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
