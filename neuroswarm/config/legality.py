"""Which aggregation rules may follow which codec, and the names that rules may use.

The one place that knows; settings, the swarm's rules and the aggregation itself ask here.
"""

from __future__ import annotations

from typing import Literal

from neuroswarm.errors import ConfigError

AggregationMethod = Literal[
    "mean",
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
]
CodecName = Literal["int4", "topk"]
NormScaling = Literal["none", "down", "both", "clip"]
KrumNeighbours = Literal["n-f-2", "n-f-1"]
OptimizerName = Literal["adamw", "muon"]
ScheduleName = Literal["constant", "cosine", "wsd"]

VECTOR_METHODS = ("mean", "krum", "multi_krum", "geometric_median", "centered_clipping")
"""Rules that weigh whole contributions."""

COORDINATE_METHODS = ("median", "trimmed_mean")
"""Rules that look at each coordinate alone. A sparse contribution says nothing of most of its
coordinates, so the middle value of each would be 0 almost everywhere."""

LEGAL_METHODS: dict[str, tuple[str, ...]] = {
    "int4": ("trimmed_mean", "median", *VECTOR_METHODS),
    "topk": ("geometric_median", "centered_clipping", "multi_krum", "krum", "mean"),
}
"""By codec; the first is the default where the user names no rule."""


def legal_codecs(method: str) -> tuple[str, ...]:
    """Codecs that a rule may follow."""
    return tuple(codec for codec, methods in LEGAL_METHODS.items() if method in methods)


def default_method(codec: str) -> AggregationMethod:
    """The rule for a codec where the user names none; `trimmed_mean` for an unknown codec."""
    return "geometric_median" if codec == "topk" else "trimmed_mean"


def fallback_method(codec: str) -> str:
    """The rule for sets too small for the swarm's own."""
    return "median" if "median" in LEGAL_METHODS.get(codec, ()) else "geometric_median"


def check_pair(codec: str, method: str) -> None:
    """ConfigError unless the rule may follow the codec; it names what would be legal."""
    if method not in LEGAL_METHODS.get(codec, (method,)):
        raise ConfigError(
            f"aggregation method {method} cannot follow codec {codec}: {codec} takes "
            f"{', '.join(LEGAL_METHODS[codec])}; {method} takes {', '.join(legal_codecs(method))}"
        )


def check_schedule(name: str, rounds: int) -> None:
    """ValueError if a learning rate is to fall, and it is not said over how many rounds."""
    if name != "constant" and not rounds:
        raise ValueError(
            f"lr_schedule {name} never falls without schedule_rounds: set the rounds over which "
            "it does"
        )
