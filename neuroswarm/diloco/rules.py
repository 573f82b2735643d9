"""What all peers of a swarm must do alike; part of the genesis and covered by every digest.

Knows names, defaults and legal ranges; what they do is written where they are used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from neuroswarm.codecs.lowbit import MAX_BLOCK
from neuroswarm.codecs.sparse import MAX_CHUNK, MIN_CHUNK
from neuroswarm.config.legality import (
    AggregationMethod,
    CodecName,
    KrumNeighbours,
    NormScaling,
    OptimizerName,
    ScheduleName,
    check_pair,
    default_method,
)
from neuroswarm.diloco.later import Later, find_later
from neuroswarm.errors import ConfigError, NewerRules, SchemaMismatch
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

NodeIdText = Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


_AS_BYTES = "as bytes"
_OF_LATER_VERSIONS = frozenset({"extra_forbidden", "literal_error"})
"""Pydantic's complaints of rules and values that this version does not know."""


class Rules(BaseModel):
    """The swarm's rules. Frozen; an unknown name is an error.

    A rule that is added to these carries the mark `Later`, so that the bytes and the digest of
    rules that were agreed before it stay what they are (docs/decisions/021).

    Raises:
        ValidationError: A value is out of range.
        ConfigError: The aggregation method cannot follow the codec.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    aggregation_method: AggregationMethod = "trimmed_mean"
    """How contributions are joined. Unset with a codec that it cannot follow: that codec's
    default."""
    krum_f: int = Field(default=0, ge=0, le=1024)
    """Least number of arbitrary contributions to withstand, whatever the size of the swarm."""
    krum_neighbours: KrumNeighbours = "n-f-2"
    """Neighbours in Krum's score: the paper's n-f-2, or n-f-1 as in byzfl."""
    trimmed_mean_beta: float = Field(default=0.1, ge=0, lt=0.5)
    """Least share of a round's contributions to trim at each side."""
    norm_scaling: NormScaling = "down"
    """`down` shortens contributions above twice the lower-median norm to that; `both` gives
    every contribution the lower-median norm; `clip` shortens the longest ones to the next norm,
    as many as f asks for; `none` leaves them."""
    use_nnm: bool = True
    """Replace each contribution by the mean of its nearest neighbours before the rule."""
    bucket_size: int = Field(default=1, ge=1, le=64)
    """Contributions averaged at random before the rule; fewer where it could not bear f then."""
    cosine_threshold: float = Field(default=0.5, ge=0, le=1)
    """A contribution is rejected whose median cosine to the others is below
    -(1 - threshold) times the set's median cosine."""
    magnitude_ratio_threshold: float = Field(default=10.0, ge=1, le=1e9)
    """A contribution longer than this many lower-median norms is rejected."""
    codec: CodecName = "int4"
    """How pseudo-gradients are coded."""
    codec_block: int = Field(default=256, ge=2, le=MAX_BLOCK, multiple_of=2)
    """Values that share a scale in `int4`."""
    topk_chunk: int = Field(default=4096, ge=MIN_CHUNK, le=MAX_CHUNK)
    """Values that share a scale in `topk`."""
    topk_kept: int = Field(default=64, ge=1, le=MAX_CHUNK)
    """Values kept of a chunk in `topk`."""
    contribution_momentum: float = Field(default=0.0, ge=0, le=0.95)
    """Momentum of each peer's contributions, kept in its coding residual."""
    outer_lr: float = Field(default=0.7, gt=0, le=10)
    """Outer learning rate when `auto_scale` is off."""
    outer_momentum: float = Field(default=0.9, ge=0, lt=1)
    """Outer Nesterov momentum; an upper end when `auto_scale` is on."""
    auto_scale: bool = True
    """Choose outer rate and momentum from the agreed set, and inner steps from the swarm size."""
    inner_steps: int = Field(default=500, ge=1, le=1_000_000)
    """Inner steps of a round (H) for one peer."""
    inner_steps_min: int = Field(default=50, ge=1, le=1_000_000)
    """Fewest inner steps of a round."""
    inner_steps_max: int = Field(default=1000, ge=1, le=1_000_000)
    """Most inner steps of a round."""

    inner_optimizer: OptimizerName = "adamw"
    """Every peer's own optimiser: AdamW, or Muon for the matrices inside the model."""
    inner_lr: float = Field(default=2e-3, gt=0, le=10)
    """Learning rate of the inner steps after the warm-up."""
    warmup_steps: int = Field(default=100, ge=0, le=1_000_000_000)
    """Inner steps over which it rises, counted from round 0 on: once for the swarm."""
    lr_schedule: ScheduleName = "constant"
    """How it falls: not at all, as half a cosine, or (`wsd`) straight in the last part."""
    schedule_rounds: int = Field(default=0, ge=0, le=1_000_000_000)
    """Rounds from 0 on over which the schedule runs; then it stays at `lr_floor`. 0: no end,
    and so no fall."""
    decay_share: float = Field(default=0.2, gt=0, le=1)
    """Share of `schedule_rounds` at their end in which `wsd` falls."""
    lr_floor: float = Field(default=0.1, ge=0, le=1)
    """What the rate falls to, as a share of `inner_lr`."""

    revision: int = Field(default=0, ge=0, le=limits.MAX_COUNT)
    """How often the owner has changed the rules."""
    owner: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """Ed25519 key, in hex, whose signature changes these rules; empty: nobody can."""
    expelled: tuple[NodeIdText, ...] = Field(default=(), max_length=limits.MAX_EXPELLED)
    """Nodes that nobody listens to any more, ascending, in hex."""

    @model_validator(mode="before")
    @classmethod
    def _as_before(cls, values: Any, info: ValidationInfo) -> Any:
        """In bytes, a rule that is not named is as it was before there was such a rule."""
        if info.context == _AS_BYTES and isinstance(values, dict):
            return {name: mark.before for name, mark in cls.later().items()} | values
        return values

    @model_validator(mode="before")
    @classmethod
    def _choose_method(cls, values: Any) -> Any:
        if isinstance(values, dict) and "codec" in values and "aggregation_method" not in values:
            return {**values, "aggregation_method": default_method(values["codec"])}
        return values

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        check_pair(self.codec, self.aggregation_method)
        if self.topk_kept > self.topk_chunk:
            raise ValueError(f"topk_kept is above topk_chunk: {self.topk_kept} > {self.topk_chunk}")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.inner_steps_min > self.inner_steps_max:
            raise ValueError(
                f"inner_steps_min is above inner_steps_max: "
                f"{self.inner_steps_min} > {self.inner_steps_max}"
            )
        return self

    @model_validator(mode="after")
    def _check_expelled(self) -> Self:
        if list(self.expelled) != sorted(set(self.expelled)):
            raise ValueError("expelled nodes are not strictly ascending")
        return self

    @property
    def expelled_ids(self) -> frozenset[NodeId]:
        """The expelled nodes."""
        return frozenset(NodeId(bytes.fromhex(text)) for text in self.expelled)

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, ASCII. The same bytes for equal rules.

        Rules that came later and are as they were before they existed are not named.
        """
        fields = self.model_dump(mode="json")
        for name, mark in self.later().items():
            if fields[name] == mark.before:
                del fields[name]
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Rules:
        """Read canonical JSON from anyone.

        Raises:
            SchemaMismatch: Too large, not the canonical JSON of rules, or out of range.
            NewerRules: They name a rule or a choice that this version does not know.
        """
        if len(data) > limits.MAX_RULES_BYTES:
            raise SchemaMismatch(f"rules: {len(data)} bytes (limit {limits.MAX_RULES_BYTES})")
        try:
            rules = cls.model_validate_json(data, context=_AS_BYTES)
        except ValidationError as error:
            raise _explain(error) from error
        except ConfigError as error:
            raise SchemaMismatch(f"rules cannot be read: {error}") from error
        if rules.to_bytes() != data:
            raise SchemaMismatch("rules are not in canonical form")
        return rules

    @classmethod
    @cache
    def later(cls) -> Mapping[str, Later]:
        """The rules that came after the first protocol version, by name."""
        return find_later(cls.model_fields)

    @property
    def protocol(self) -> int:
        """The lowest protocol version whose programs know all that these rules name."""
        named = json.loads(self.to_bytes())
        return max((mark.since for name, mark in self.later().items() if name in named), default=1)

    @property
    def rules_hash(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.to_bytes()).digest()


def _explain(error: ValidationError) -> SchemaMismatch:
    """One line; of what a later version brought rather than of what else is wrong."""
    found = error.errors(include_url=False)
    newer = [f for f in found if f["type"] in _OF_LATER_VERSIONS and f["loc"]]
    if newer:
        names = ", ".join(
            _shown(f["loc"][0])
            if f["type"] == "extra_forbidden"
            else f"{f['loc'][0]} {f['input']!r}"
            for f in newer
        )
        return NewerRules(
            f"rules of a later version ({names[:200]}): upgrade neuroswarm to follow them"
        )
    where = ".".join(str(part) for part in found[0]["loc"])
    return SchemaMismatch(f"rules cannot be read: {where} {found[0]['msg']}")


def _shown(name: object) -> str:
    """A name that may come from anyone, without what would begin a line of its own in a log."""
    text = str(name)
    return text if text.isidentifier() else repr(text)
