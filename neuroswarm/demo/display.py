"""What a demo looks like while it runs: a live table on terminals, lines elsewhere.

Knows views; refuses to know processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

MB = 1e6


@dataclass(frozen=True, slots=True)
class PeerView:
    """One peer, now."""

    name: str
    state: str
    """One word: waiting, starting, training, hostile, killed, back."""
    is_honest: bool
    round: int
    digest: str
    """First digits; empty before the first round."""
    steps: int
    loss: float | None
    """Held out, nats per byte."""
    foreign_used: int
    bytes_sent: int
    repairs: int


class Display(Protocol):
    """Where a demo shows itself."""

    def begin(self, title: str, total: float, unit: str) -> None:
        """A run starts; its progress will go from 0 to `total`."""
        ...

    def show(self, views: Sequence[PeerView], done: float) -> None:
        """The peers now; called several times a second."""
        ...

    def say(self, line: str) -> None:
        """Something happened."""
        ...

    def end(self) -> None:
        """The run is over."""
        ...


def make_display(console: Console) -> Display:
    """The live display if the console is a terminal, else lines."""
    return LiveDisplay(console) if console.is_terminal else LineDisplay(console)


class LineDisplay:
    """A line at the start of a run, one for every round, one for every happening."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._round = 0

    def begin(self, title: str, total: float, unit: str) -> None:
        """Print the title."""
        self._round = 0
        self.say(f"{title}: {total:.0f} {unit}")

    def show(self, views: Sequence[PeerView], done: float) -> None:
        """Print a line when all honest peers that run have reached another round."""
        running = [v for v in views if v.is_honest and v.digest and v.state != "killed"]
        reached = min((view.round for view in running), default=0)
        if reached > self._round:
            self._round = reached
            self.say(describe_round(reached, running))

    def say(self, line: str) -> None:
        """Print it."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None:
        """Nothing to do."""


class LiveDisplay:
    """A table of the peers and a progress bar, renewed in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._progress = Progress()
        self._task = TaskID(0)

    def begin(self, title: str, total: float, unit: str) -> None:
        """Open the display."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn(f"{{task.completed:.0f}} of {{task.total:.0f}} {unit}"),
            TimeElapsedColumn(),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task(title, total=total)
        # Drawn by `show`: no thread of its own, since processes are started meanwhile.
        self._live = Live(self._progress, console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, views: Sequence[PeerView], done: float) -> None:
        """Draw the table anew."""
        assert self._live is not None, "begin comes first"
        self._progress.update(self._task, completed=done)
        self._live.update(Group(make_table(views), self._progress), refresh=True)

    def say(self, line: str) -> None:
        """Print it above the table."""
        self._console.print(line, highlight=False, markup=False)

    def end(self) -> None:
        """Leave the last table where it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def describe_round(reached: int, views: Sequence[PeerView]) -> str:
    """One line for a round that all these peers have reached."""
    digests = {view.digest for view in views if view.round == reached}
    steps = sorted(view.steps for view in views)
    losses = [view.loss for view in views if view.round == reached and view.loss is not None]
    parts = [f"round {reached}: {len(views)} {'peer' if len(views) == 1 else 'peers'}"]
    parts.append(f"digest {digests.pop()}" if len(digests) == 1 else "DIGESTS DIFFER")
    parts.append(f"{steps[len(steps) // 2]} steps each")
    if losses:
        parts.append(f"held-out loss {losses[0]:.4f}")
    parts.append(f"{sum(view.bytes_sent for view in views) / len(views) / MB:.1f} MB sent each")
    repairs = sum(view.repairs for view in views)
    if repairs:
        parts.append(f"{repairs} repairs")
    return ", ".join(parts)


def make_table(views: Sequence[PeerView]) -> Table:
    """The peers, one a row."""
    table = Table(expand=True)
    table.add_column("peer")
    table.add_column("")
    for title in ("round", "digest", "inner steps", "held-out loss", "used of others", "MB sent"):
        table.add_column(title, justify="right")
    for view in views:
        style = {"killed": "dim", "hostile": "red"}.get(view.state, "")
        table.add_row(
            view.name,
            view.state,
            str(view.round),
            view.digest,
            str(view.steps),
            "" if view.loss is None else f"{view.loss:.4f}",
            str(view.foreign_used),
            f"{view.bytes_sent / MB:.1f}",
            style=style,
        )
    return table
