"""The flat names of settings, for callers from Python and short configuration files.

Refuses to know more of a setting than the section and key that it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast, overload

from pydantic import BaseModel

from neuroswarm.errors import ConfigError

T = TypeVar("T")


class FlatName(Generic[T]):
    """A setting that is also known by one flat name: reads `section.key` of its config."""

    def __init__(self, path: str) -> None:
        self.path = path

    @overload
    def __get__(self, config: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, config: object, owner: type[object]) -> T: ...
    def __get__(self, config: object | None, owner: type[object]) -> Self | T:
        if config is None:
            return self
        section, _, key = self.path.partition(".")
        return cast("T", getattr(getattr(config, section), key))


class FlatNames:
    """The flat names of the settings, accepted by and readable on `SwarmNodeConfig`."""

    inbound_buffer_size = FlatName[int]("buffers.inbound_size")
    outbound_buffer_size = FlatName[int]("buffers.outbound_size")
    soft_overflow_threshold = FlatName[float]("buffers.soft_overflow_threshold")
    hard_overflow_threshold = FlatName[float]("buffers.hard_overflow_threshold")
    ack_timeout_ms = FlatName[int]("pipeline.ack_timeout_ms")
    k_candidates = FlatName[int]("pipeline.k_candidates")
    num_micro_batches = FlatName[int]("pipeline.num_micro_batches")
    heartbeat_interval = FlatName[float]("heartbeat.interval_s")
    heartbeat_port = FlatName[int]("heartbeat.port")
    diloco_inner_steps = FlatName[int]("diloco.inner_steps")
    diloco_inner_steps_min = FlatName[int]("diloco.inner_steps_min")
    diloco_inner_steps_max = FlatName[int]("diloco.inner_steps_max")
    diloco_outer_lr = FlatName[float]("diloco.outer_lr")
    diloco_outer_momentum = FlatName[float]("diloco.outer_momentum")
    diloco_auto_scale = FlatName[bool]("diloco.auto_scale")
    checkpoint_interval = FlatName[float]("checkpoint.interval_s")
    max_checkpoints = FlatName[int]("checkpoint.max_checkpoints")
    checkpoint_dir = FlatName[Path | None]("checkpoint.dir")
    aggregation_method = FlatName[str]("aggregation.method")
    krum_f = FlatName[int]("aggregation.krum_f")
    trimmed_mean_beta = FlatName[float]("aggregation.trimmed_mean_beta")
    cosine_threshold = FlatName[float]("aggregation.cosine_threshold")
    magnitude_ratio_threshold = FlatName[float]("aggregation.magnitude_ratio_threshold")


FLAT_PATHS: Mapping[str, str] = {
    name: value.path for name, value in vars(FlatNames).items() if isinstance(value, FlatName)
}
"""From flat name to `section.key`."""


def fold_flat_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Move flat names into their sections; the other keys stay as they are.

    Raises:
        ConfigError: a setting is given both ways.
    """
    folded = {key: value for key, value in values.items() if key not in FLAT_PATHS}
    for name in values.keys() & FLAT_PATHS.keys():
        section, _, key = FLAT_PATHS[name].partition(".")
        inside = folded.get(section, {})
        if isinstance(inside, BaseModel):
            inside = inside.model_dump(exclude_unset=True)
        if not isinstance(inside, Mapping):
            continue  # validation says what is wrong with it
        if key in inside:
            raise ConfigError(f"{name} and {section}.{key} are the same setting: give one of them")
        folded[section] = {**inside, key: values[name]}
    return folded
