"""All settings of a node together, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from neuroswarm.config.dht import DhtConfig
from neuroswarm.config.flat import FLAT_PATHS, FlatNames, fold_flat_names
from neuroswarm.config.guest import GuestConfig
from neuroswarm.config.legality import check_pair, default_method
from neuroswarm.config.lora import LoraConfig
from neuroswarm.config.metering import MeteringConfig
from neuroswarm.config.pace import scale_inner_steps
from neuroswarm.config.pipeline import BufferConfig, PipelineConfig
from neuroswarm.config.section import Section
from neuroswarm.config.sections import (
    AggregationConfig,
    CheckpointConfig,
    DataConfig,
    DilocoConfig,
    HeartbeatConfig,
    NetworkConfig,
    RelayConfig,
    ResourceConfig,
    RoundConfig,
    RunConfig,
)
from neuroswarm.config.training import TrainingConfig

DEFAULT_STATE_DIR = Path("~/.local/state/neuroswarm")


class SwarmNodeConfig(FlatNames, Section):
    """Settings of one node, in sections; the flat names are accepted and readable too."""

    network: NetworkConfig = NetworkConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    relay: RelayConfig = RelayConfig()
    dht: DhtConfig = DhtConfig()
    metering: MeteringConfig = MeteringConfig()
    rounds: RoundConfig = RoundConfig()
    diloco: DilocoConfig = DilocoConfig()
    aggregation: AggregationConfig = AggregationConfig()
    training: TrainingConfig = TrainingConfig()
    lora: LoraConfig = LoraConfig()
    data: DataConfig = DataConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    buffers: BufferConfig = BufferConfig()
    pipeline: PipelineConfig = PipelineConfig()
    resources: ResourceConfig = ResourceConfig()
    guest: GuestConfig = GuestConfig()
    run: RunConfig = RunConfig()
    state_dir: Path | None = None
    """Folder of this node's key, checkpoints and journal. Unset: the first folder of `node`,
    `node-2`, ... that no other node uses, under the user's state folder and the swarm's name."""

    def __init__(self, **values: Any) -> None:
        """Take sections, flat names and `state_dir`; ConfigError in one line for bad ones."""
        super().__init__(**values)

    @classmethod
    def fold(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Move flat names into their sections; choose the rule that a codec needs."""
        return _choose_method(fold_flat_names(values))

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        check_pair(self.diloco.codec, self.aggregation.method)
        return self

    @classmethod
    def setting_names(cls) -> list[str]:
        """Every name that may be given: `section.key`, whole sections, and the flat names."""
        names: list[str] = []
        for name, field in cls.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                names += field.annotation.setting_names()
            names.append(name)
        return [*names, *FLAT_PATHS]

    def for_model(self, *, is_handed_over: bool) -> Self:
        """These settings with an inner optimiser, chosen by what is trained if none is set.

        Args:
            is_handed_over: Whether a module was given instead of the one that the settings name.
        """
        training = self.training
        if training.optimizer is not None:
            return self
        is_measured = training.model == "transformer" and not self.lora.rank and not is_handed_over
        chosen = training.model_copy(update={"optimizer": "muon" if is_measured else "adamw"})
        return self.model_copy(update={"training": chosen})

    def get_checkpoint_dir(self) -> Path:
        """The folder of the checkpoints, created if it is missing."""
        folder = self.checkpoint.dir
        if folder is None:
            state_dir = self.state_dir or DEFAULT_STATE_DIR / self.network.name / "node"
            folder = state_dir / "checkpoints"
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def get_diloco_inner_steps(self, num_peers: int) -> int:
        """Steps per round for `num_peers` peers: base * (1 + log10(peers) / 3), within limits.

        The base is unchanged for one peer or with automatic scaling off.
        """
        diloco = self.diloco
        if not diloco.auto_scale:
            return diloco.inner_steps
        return scale_inner_steps(
            diloco.inner_steps, diloco.inner_steps_min, diloco.inner_steps_max, num_peers
        )


def _choose_method(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a codec is set and no aggregation method: the codec's default method."""
    codec = _given(values.get("diloco")).get("codec")
    aggregation = _given(values.get("aggregation"))
    if not isinstance(codec, str) or "method" in aggregation:
        return values
    return {**values, "aggregation": {**aggregation, "method": default_method(codec)}}


def _given(section: object) -> Mapping[str, Any]:
    """What was set of a section, in whichever form it was given."""
    if isinstance(section, BaseModel):
        return section.model_dump(exclude_unset=True)
    return section if isinstance(section, Mapping) else {}
