"""Settings: sections for the parts, and `SwarmNodeConfig` for all of them."""

from neuroswarm.config.dht import DhtConfig
from neuroswarm.config.lora import LoraConfig
from neuroswarm.config.metering import MeteringConfig
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
from neuroswarm.config.swarm_node import SwarmNodeConfig
from neuroswarm.config.training import TrainingConfig

__all__ = [
    "AggregationConfig",
    "BufferConfig",
    "CheckpointConfig",
    "DataConfig",
    "DhtConfig",
    "DilocoConfig",
    "HeartbeatConfig",
    "LoraConfig",
    "MeteringConfig",
    "NetworkConfig",
    "PipelineConfig",
    "RelayConfig",
    "ResourceConfig",
    "RoundConfig",
    "RunConfig",
    "Section",
    "SwarmNodeConfig",
    "TrainingConfig",
]
