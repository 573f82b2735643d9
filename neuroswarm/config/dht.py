"""The settings of the DHT.

Refuses to know the other sections.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from neuroswarm.config.section import Section, split_list
from neuroswarm.values import Endpoint, parse_endpoint


class DhtConfig(Section):
    """The table in which nodes find one another without a tracker."""

    prefix = "dht."

    enabled: bool = True
    """Take part in it."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """UDP port; 0 takes any free one. Unset: the number of the gRPC port, or any free one if that
    is taken."""
    seeds: tuple[str, ...] = ()
    """`host:port` of nodes in it to begin with, by their DHT ports; one string may hold several,
    with commas between them. Peers known otherwise are seeds too."""
    record_ttl_s: float = Field(default=1800.0, gt=0, le=7200)
    """Seconds that this node's records outlive it if it dies; they are renewed three times in
    that time, and withdrawn when it leaves."""
    lookup_s: float = Field(default=300.0, gt=0, le=3600)
    """Seconds between two lookups of the swarm's nodes; fewer while this node has no peers."""
    refresh_s: float = Field(default=300.0, gt=0, le=3600)
    """Seconds after which contacts that were silent are asked whether they live."""
    timeout_s: float = Field(default=2.0, gt=0, le=60)
    """Seconds that a question may take; it is sent four times in them until there is an answer."""

    @field_validator("seeds", mode="before")
    @classmethod
    def _split_seeds(cls, value: object) -> object:
        return split_list(value)

    @property
    def seed_endpoints(self) -> tuple[Endpoint, ...]:
        """The seeds as endpoints."""
        return tuple(map(parse_endpoint, self.seeds))

    @model_validator(mode="after")
    def _seeds_are_endpoints(self) -> Self:
        _ = self.seed_endpoints  # says which one is not
        return self
