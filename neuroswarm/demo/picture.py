"""A picture of a demo: losses over inner steps, bytes over rounds.

Needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuroswarm.errors import ConfigError

MISSING = "no picture: matplotlib is missing (pip install 'neuroswarm[plot]', or --no-picture)"


def require_matplotlib() -> None:
    """ConfigError if there is no matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(MISSING) from error


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a report; the format follows the name's ending.

    Args:
        report: From `make_report`, with `loss_curve_alone` or `loss_curve_reference`.
        path: Replaced if it exists.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    losses, traffic = figure.subplots(1, 2)
    _curve(losses, report["loss_curve"], f"{report['peers']} peers", report["loss_swarm"])
    if "loss_curve_alone" in report:
        _curve(losses, report["loss_curve_alone"], "one peer alone", report["loss_alone"])
    if "loss_curve_reference" in report:
        label = "without hostile and killed peers"
        _curve(losses, report["loss_curve_reference"], label, report["loss_reference"])
    losses.set_xlabel("inner steps per peer (of the one that took most)")
    losses.set_ylabel("held-out loss, nats per byte")
    losses.legend()
    rounds = [r for r, _ in report["bytes_by_round"]]
    traffic.bar(rounds, [num_bytes / 1e6 for _, num_bytes in report["bytes_by_round"]])
    traffic.xaxis.set_major_locator(MaxNLocator(integer=True))
    traffic.set_xlabel("round")
    traffic.set_ylabel("MB sent per peer")
    if report["bytes_vs_allreduce"] is not None:
        traffic.set_title(
            f"{report['bytes_vs_allreduce']:.0f} times less than an all-reduce at every step"
        )
    figure.savefig(path, dpi=120)


def _curve(axes: Any, points: Sequence[Sequence[float]], label: str, last: float) -> None:
    axes.plot(
        [steps for steps, _ in points],
        [loss for _, loss in points],
        marker=".",
        label=f"{label} ({last:.3f})",
    )
