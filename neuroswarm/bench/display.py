"""What a benchmark looks like while it runs: a bar on terminals, lines elsewhere."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Display(Protocol):
    """Where a benchmark shows itself."""

    def say(self, line: str) -> None:
        """Something to know before it begins."""
        ...

    def begin(self, title: str, total: int) -> None:
        """So many runs are to come."""
        ...

    def advance(self, line: str) -> None:
        """A run ended; what came of it."""
        ...

    def end(self) -> None:
        """Nothing more will come."""
        ...


def make_display(console: Console) -> Display:
    """The bar if the console is a terminal, else lines."""
    return BarDisplay(console) if console.is_terminal else LineDisplay(console)


class LineDisplay:
    """A line for each run, with how many there are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = self._total = 0

    def say(self, line: str) -> None:
        """Print the line."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self, title: str, total: int) -> None:
        """Print the title."""
        self._done, self._total = 0, total
        self.say(f"{title}: {total} runs")

    def advance(self, line: str) -> None:
        """Print the line."""
        self._done += 1
        self.say(f"{self._done} of {self._total}: {line}")

    def end(self) -> None:
        """Nothing to do."""


class BarDisplay:
    """A bar, with the newest result above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("", visible=False)

    def say(self, line: str) -> None:
        """Print the line."""
        self._progress.console.print(line, highlight=False, markup=False)

    def begin(self, title: str, total: int) -> None:
        """Open the display."""
        self._progress.update(self._task, description=title, total=total, visible=True)
        self._progress.start()

    def advance(self, line: str) -> None:
        """Print the line above and draw the bar."""
        self._progress.console.print(line, highlight=False, markup=False)
        self._progress.advance(self._task)

    def end(self) -> None:
        """Leave the bar where it is."""
        self._progress.stop()
