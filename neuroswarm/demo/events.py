"""What the nodes' event logs say, as values.

Knows the two kinds of events; refuses to know where the lines come from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_START = '{"event"'


@dataclass(frozen=True, slots=True)
class Published:
    """A peer signed and sent a contribution."""

    time: float
    """Wall clock, seconds."""
    round: int
    contribution: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A peer moved to another outer state."""

    time: float
    """Wall clock once the new outer state was applied, seconds."""
    round: int
    """Of the new outer state."""
    digest: str
    is_repair: bool
    is_download: bool
    contributions: tuple[str, ...]
    """The agreed set; empty for a download."""
    signers: tuple[str, ...]
    """Node ids, in the order of `contributions`."""
    foreign_used: int
    """Contributions of other peers that the outer step used."""
    held_out_loss: float | None
    """Of the new outer state, nats per byte."""
    total_inner_steps: int
    """Over all lives of the peer, also those not contributed yet."""
    num_params: int
    bytes_sent: int
    """Since this life of the peer began; whole messages."""
    step_s: float
    """Seconds in inner steps since this life of the peer began."""


Event = Published | Committed


@dataclass(frozen=True, slots=True)
class Life:
    """From the start of a peer's process to its end; wall clock, seconds."""

    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """All that is known of one peer after a run."""

    name: str
    published: tuple[Published, ...]
    committed: tuple[Committed, ...]
    """In the order in which they happened."""
    lives: tuple[Life, ...] = ()
    is_hostile: bool = False

    @property
    def node_id(self) -> str | None:
        """The peer's id as others' commits show it; None if nothing of it was agreed here."""
        own = {event.contribution for event in self.published}
        for event in self.committed:
            for contribution, signer in zip(event.contributions, event.signers, strict=True):
                if contribution in own:
                    return signer
        return None


def parse_event(line: str) -> Event | None:
    """Read one line; None if it is no whole event of a kind known here.

    A process that was killed may leave half a line, to which its next life appends a whole one.
    """
    start = line.rfind(_START)
    if start < 0:
        return None
    try:
        return _from_values(json.loads(line[start:]))
    except (ValueError, KeyError, TypeError):
        return None


def make_record(
    name: str, events: Iterable[Event], *, lives: Iterable[Life] = (), is_hostile: bool = False
) -> PeerRecord:
    """Sort a peer's events by time; a log has commits after their evaluation."""
    ordered = sorted(events, key=lambda event: event.time)
    return PeerRecord(
        name,
        tuple(event for event in ordered if isinstance(event, Published)),
        tuple(event for event in ordered if isinstance(event, Committed)),
        tuple(lives),
        is_hostile,
    )


@dataclass(slots=True)
class LineSplitter:
    """Whole lines out of a file that grows."""

    _rest: str = field(default="")

    def feed(self, text: str) -> list[str]:
        """The lines that `text` completes, without their ends."""
        *lines, self._rest = (self._rest + text).split("\n")
        return lines


def _from_values(values: Mapping[str, Any]) -> Event | None:
    match values["event"]:
        case "published":
            return Published(values["time"], values["round"], values["contribution"])
        case "commit":
            loss = values["held_out_loss"]
            return Committed(
                time=float(values["time"]),
                round=int(values["round"]),
                digest=str(values["digest"]),
                is_repair=bool(values["is_repair"]),
                is_download=bool(values["is_download"]),
                contributions=tuple(values["contributions"]),
                signers=tuple(values["signers"]),
                foreign_used=int(values["foreign_used"]),
                held_out_loss=None if loss is None else float(loss),
                total_inner_steps=int(values["total_inner_steps"]),
                num_params=int(values["num_params"]),
                bytes_sent=int(values["bytes_sent"]),
                step_s=float(values["step_s"]),
            )
        case _:
            return None
