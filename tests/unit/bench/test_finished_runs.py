"""A stopped benchmark goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroswarm.bench.attack_bench import Setup, run_attacks
from neuroswarm.bench.matrix import Selection
from neuroswarm.bench.task import Task


class StopsAfter:
    """A display on which the user interrupts after so many runs."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.said: list[str] = []
        self.num_runs = 0

    def say(self, line: str) -> None:
        self.said.append(line)

    def begin(self, title: str, total: int) -> None:
        pass

    def advance(self, line: str) -> None:
        self.num_runs += 1
        if self.num_runs == self.limit:
            raise KeyboardInterrupt

    def end(self) -> None:
        pass


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    text = tmp_path / "text"
    text.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(20_000)))
    return Setup(
        Selection(seeds=(5,), arms=("mean",), attacks=("scaling x100",)),
        Task().with_rounds(2, 2),
        data=text,
        runs_path=tmp_path / "report.json.runs",
    )


def test_what_was_finished_is_not_run_again(setup: Setup):
    with pytest.raises(KeyboardInterrupt):
        run_attacks(setup, StopsAfter(2))
    assert setup.runs_path is not None
    with setup.runs_path.open("a") as file:
        file.write('{"key": "cut sho')
    display = StopsAfter()
    resumed = run_attacks(setup, display)
    assert display.num_runs == 1
    assert display.said == [f"2 runs are taken over from {setup.runs_path}"]
    setup.runs_path.unlink()
    assert _measures(resumed) == _measures(run_attacks(setup, StopsAfter()))


def test_other_circumstances_take_nothing_over(setup: Setup):
    with pytest.raises(KeyboardInterrupt):
        run_attacks(setup, StopsAfter(2))
    other = Setup(
        setup.selection, Task().with_rounds(3, 2), data=setup.data, runs_path=setup.runs_path
    )
    display = StopsAfter()
    run_attacks(other, display)
    assert (display.num_runs, display.said) == (3, [])


def _measures(report: dict[str, Any]) -> dict[str, Any]:
    return {key: report[key] for key in ("table", "clean", "runs", "promises")}
