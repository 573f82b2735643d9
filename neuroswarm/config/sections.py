"""The settings of each part: names, defaults, legal ranges and laws between them.

Refuses to know where values come from: files, environment and flags are merged in `cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from neuroswarm.config.device_list import check_devices
from neuroswarm.config.legality import (
    AggregationMethod,
    CodecName,
    KrumNeighbours,
    NormScaling,
)
from neuroswarm.config.section import Section, split_list
from neuroswarm.values import FORMER_PROTOCOL, PROTOCOL_VERSION, unbracketed

MAX_PORT = 65535
GRPC_PORT_OFFSET = 1000
"""gRPC listens this far above the HTTP port unless told otherwise."""


class NetworkConfig(Section):
    """Where the node listens, how others reach it, and whom it asks first."""

    prefix = "network."

    name: str = Field(default="default", min_length=1, max_length=64)
    """Name of the swarm; nodes of other names are not peers."""
    trackers: tuple[str, ...] = ()
    """Addresses of nodes or bare trackers to ask for peers, like `http://10.0.0.5:7101`; one
    string may hold several, with commas between them."""
    peers: tuple[str, ...] = ()
    """Nodes to greet and to ask, by `HOST` or `HOST:PORT` (heartbeat or HTTP port), or by
    `dns://NAME:PORT` all that a name stands for now; one string may hold several, with commas
    between them."""
    lan: bool = True
    """Look for others on the local network, and be found there, by multicast DNS; never in a
    container that has a network of its own, nor if the node listens on loopback only."""
    host: str = Field(default="0.0.0.0", min_length=1)
    """Address to listen on for gRPC, heartbeats and HTTP; `0.0.0.0` for all of IPv4, `::` for all
    of IPv4 and IPv6."""
    port: int = Field(default=7101, ge=0, le=MAX_PORT)
    """HTTP port; 0 takes any free one."""
    grpc_port: int | None = Field(default=None, ge=0, le=MAX_PORT)
    """gRPC port; 0 takes any free one. Unset: the HTTP port + 1000."""
    announce_host: tuple[str, ...] = ()
    """Host names or addresses that peers are told, best first; one string may hold several, with
    commas between them. Unset: this machine's addresses on the routes to the others."""
    http_open: bool = False
    """Answer status, peers and metrics to callers from other machines too."""
    token_file: Path | None = None
    """File that holds the swarm token. Unset: the token comes from elsewhere, or none is used."""
    accepted_token_files: tuple[Path, ...] = Field(default=(), max_length=4)
    """Files with tokens accepted besides the node's own, while a swarm changes its token; one
    string may hold several, with commas between them."""
    owner: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """Public key, in hex, of who may change a new swarm's rules and expel nodes (make one with
    `neuroswarm owner new`). Unset: nobody can."""
    max_concurrent_rpcs: int = Field(default=256, ge=1)
    """gRPC calls served at once; more are refused."""
    max_peers_per_address: int | None = Field(default=None, ge=1)
    """Peers taken from one IPv4 address or IPv6 /64. Unset: 16 in a swarm without a token, which
    limits many nodes on one machine too; no limit with a token."""

    protocol_version: int = Field(default=PROTOCOL_VERSION, ge=FORMER_PROTOCOL, le=PROTOCOL_VERSION)
    """Newest protocol version to speak. One less while nodes two versions back are being
    upgraded, which talk with no newer one."""

    @field_validator("trackers", "peers", "announce_host", "accepted_token_files", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return split_list(value)

    @field_validator("host")
    @classmethod
    def _unbracket(cls, host: str) -> str:
        return unbracketed(host)

    @field_validator("announce_host")
    @classmethod
    def _unbracket_all(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(unbracketed, hosts))

    @property
    def bound_grpc_port(self) -> int:
        """The gRPC port to bind: the one set, else 1000 above HTTP, else any (0)."""
        if self.grpc_port is not None:
            return self.grpc_port
        return self.port + GRPC_PORT_OFFSET if self.port else 0

    @model_validator(mode="after")
    def _grpc_port_exists(self) -> Self:
        if self.bound_grpc_port > MAX_PORT:
            raise ValueError(
                f"port {self.port} leaves no gRPC port {self.bound_grpc_port} "
                f"(at most {MAX_PORT - GRPC_PORT_OFFSET}, or set grpc_port)"
            )
        return self


class RelayConfig(Section):
    """Whether and how much a node relays for peers that others do not reach."""

    prefix = "relay."

    enabled: bool = True
    """Relay for others, who send through this node what it can neither read nor change."""
    max_mbit_per_node: float = Field(default=20.0, ge=0.5, le=100_000)
    """Mbit/s that each of them may send through this node."""


class HeartbeatConfig(Section):
    """How nodes tell one another that they live."""

    prefix = "heartbeat."

    interval_s: float = Field(default=5.0, gt=0, le=3600)
    """Seconds between two heartbeats; a peer is stale after 3 of them, forgotten after 12."""
    port: int = Field(default=9999, ge=0, le=MAX_PORT)
    """UDP port; 0 takes any free one."""


class DilocoConfig(Section):
    """Rounds of local steps and the outer optimiser; part of a new swarm's rules."""

    prefix = "diloco."

    inner_steps: int = Field(default=500, ge=1, le=1_000_000)
    """Local steps per round for one peer (H)."""
    inner_steps_min: int = Field(default=50, ge=1, le=1_000_000)
    """Fewest steps that automatic scaling chooses."""
    inner_steps_max: int = Field(default=1000, ge=1, le=1_000_000)
    """Most steps that automatic scaling chooses."""
    outer_lr: float = Field(default=0.7, gt=0, le=10)
    """Outer learning rate; used as it is when `auto_scale` is off."""
    outer_momentum: float = Field(default=0.9, ge=0, lt=1)
    """Outer Nesterov momentum; an upper end when `auto_scale` is on."""
    auto_scale: bool = True
    """Let steps, outer rate and momentum follow the number of peers and the round's length."""
    codec: CodecName = "int4"
    """How pseudo-gradients are coded on the wire: `int4` keeps every value in 4 bits, `topk` the
    largest few of each chunk in 2 bits, for links under about 2 Mbit/s and long runs."""
    codec_block: int = Field(default=256, ge=2, le=1024, multiple_of=2)
    """Values that share one scale in `int4`."""
    topk_chunk: int = Field(default=4096, ge=16, le=65536)
    """Values that share one scale in `topk`."""
    topk_kept: int = Field(default=64, ge=1, le=65536)
    """Values kept of each chunk in `topk`; at most the chunk."""
    contribution_momentum: float = Field(default=0.0, ge=0, le=0.95)
    """Momentum of each node's contributions before the aggregation; 0 is none."""

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.inner_steps_min > self.inner_steps_max:
            raise ValueError(
                f"inner_steps_min {self.inner_steps_min} is above "
                f"inner_steps_max {self.inner_steps_max}"
            )
        if self.topk_kept > self.topk_chunk:
            raise ValueError(f"topk_kept {self.topk_kept} is above topk_chunk {self.topk_chunk}")
        return self


class AggregationConfig(Section):
    """How contributions become one; part of a new swarm's rules."""

    prefix = "aggregation."

    method: AggregationMethod = "trimmed_mean"
    """Rule that combines the contributions of a round; `median` and `trimmed_mean` need
    `diloco.codec` `int4`. Unset with `topk`: `geometric_median`."""
    krum_f: int = Field(default=0, ge=0, le=1024)
    """Hostile peers to bear at least; a quarter of the swarm's identities is borne anyway."""
    krum_neighbours: KrumNeighbours = "n-f-2"
    """Neighbours that count in the score of Krum and multi-Krum."""
    trimmed_mean_beta: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of contributions to trim on each side at least."""
    norm_scaling: NormScaling = "down"
    """`down` shortens contributions above twice the median norm to that, `both` gives every one
    the median norm, `clip` shortens the longest few to the next norm, `none` leaves them."""
    use_nnm: bool = True
    """Mix every contribution with its nearest neighbours before the rule."""
    bucket_size: int = Field(default=1, ge=1, le=64)
    """Contributions averaged at random before the rule, where it still bears enough then; 1 is
    none."""
    cosine_threshold: float = Field(default=0.5, ge=0, le=1)
    """A contribution is left out whose median cosine to the others is below
    -(1 - threshold) times the set's median cosine."""
    magnitude_ratio_threshold: float = Field(default=10.0, ge=1, le=1e9)
    """Multiple of the set's median norm above which a contribution is left out."""


class RoundConfig(Section):
    """Deadlines of a round; a node's own, not part of the rules."""

    prefix = "rounds."

    genesis_wait_s: float = Field(default=5.0, ge=0)
    """Seconds without an answer to any hint before a node starts a swarm of its own."""
    min_grace_s: float = Field(default=1.0, ge=0)
    """Seconds that the others get at least once enough peers are ready."""
    grace_fraction: float = Field(default=0.1, ge=0, le=1)
    """Grace as a share of the round so far, when that is longer."""
    contagion_s: float = Field(default=0.3, ge=0)
    """Seconds between enough heard ballots and closing too."""
    collect_deadline_s: float = Field(default=60.0, gt=0)
    """Longest wait after publishing for the contributions of live peers."""
    seal_deadline_s: float = Field(default=2.0, gt=0)
    """Longest wait for the seals of two thirds of the peers before payloads are given out."""
    settle_s: float = Field(default=0.5, ge=0)
    """Seconds after closing before the ballots are counted; less on fast links."""
    min_settle_s: float = Field(default=0.05, ge=0)
    """Least that fast links shorten `settle_s` and `contagion_s` to."""
    ballot_deadline_s: float = Field(default=2.0, gt=0)
    """Longest wait for missing ballots after closing."""
    confirm_deadline_s: float = Field(default=1.5, gt=0)
    """Longest wait for equal confirms after the ballots."""
    mute_after_s: float = Field(default=30.0, gt=0)
    """Seconds that a round waits, once this node is ready, for peers that have said nothing in
    it nor in the two before; then it goes on without them."""
    patience_s: float = Field(default=1.0, ge=0)
    """Seconds behind a peer, or apart from it, before asking it how the round ended."""
    pull_timeout_s: float = Field(default=30.0, gt=0)
    """Longest time for pulling one payload from one peer."""
    pull_stall_s: float = Field(default=5.0, gt=0)
    """Seconds without progress before another holder of a payload is asked."""
    max_retained_states: int = Field(default=4, ge=1, le=64)
    """Past outer states kept in memory for joiners and repairs."""
    max_state_downloads: int = Field(default=4, ge=1, le=1024)
    """Peers that download a state from this node at once; more are sent elsewhere."""
    max_state_upload_mbit: float | None = Field(default=None, gt=0)
    """Mbit/s that all of them together get. Unset: no limit."""

    @model_validator(mode="after")
    def _settle_before_deadline(self) -> Self:
        if self.settle_s > self.ballot_deadline_s:
            raise ValueError(
                f"settle_s {self.settle_s} is above ballot_deadline_s {self.ballot_deadline_s}"
            )
        return self


class CheckpointConfig(Section):
    """What is kept on disk for a restart."""

    prefix = "checkpoint."

    interval_s: float = Field(default=120, gt=0)
    """Seconds between two snapshots of what the node alone knows; one more follows every outer
    sync, a risk (memory, battery, heat), and the end."""
    max_checkpoints: int = Field(default=5, ge=1)
    """Checkpoints kept, with the outer states that they need; older ones are deleted."""
    daily_write_mb: int | None = Field(default=None, ge=1)
    """MB of checkpoints that may be written a day; when they run short, intervals stretch and
    outer states come first. Unset: 2048 on an SD card, else no limit."""
    dir: Path | None = None
    """Folder of the checkpoints. Unset: `checkpoints` in the node's state folder."""


class DataConfig(Section):
    """The text to train on."""

    prefix = "data."

    path: Path | None = None
    """Text file, folder of text files, or folder of token shards. Unset: this Python's standard
    library source."""
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of text read at most; token shards stay on the disk and have no limit."""
    fetch: bool = True
    """Fetch shards that the folder lacks from peers, as many as `resources.max_storage_mb` allows;
    off: train on those that are there."""
    max_downloads: int = Field(default=4, ge=1, le=1024)
    """Peers that fetch shards from this node at once; more are sent elsewhere."""
    max_upload_mbit: float | None = Field(default=None, gt=0)
    """Mbit/s that all of them together get. Unset: no limit but that of the node."""
    plateau_rounds: int = Field(default=20, ge=1, le=10_000)
    """Rounds over which the loss must have fallen, against as many before, or shards are changed
    for others, where not all fit."""
    plateau_gain: float = Field(default=0.005, ge=0, le=1)
    """Share of the loss by which it must have fallen; 0: shards are changed only where it rises."""


class ResourceConfig(Section):
    """What the node may take of its machine."""

    prefix = "resources."

    device: str = "auto"
    """Torch device to train on; `auto` takes an accelerator (CUDA, MPS) when there is one."""
    devices: Annotated[str | None, AfterValidator(check_devices)] = None
    """Devices to train on together, like `cuda:0,cuda:1`, the first of which holds the node's
    model. `auto`: all CUDA devices with about the memory of the first, if `resources.device` is
    `auto` too; else that one device. Unset: the one of `resources.device`."""
    max_cpu_threads: int = Field(default=4, ge=1)
    """Processor threads for training, never more than there are cores."""
    max_storage_mb: int = Field(default=10000, ge=1)
    """Disk space for data and checkpoints, MB; where they take more, no shards are fetched."""
    available_memory_mb: int | None = Field(default=None, ge=1)
    """Memory to use, MB, some 260 of which go to Python and torch. Unset: what the machine has
    free, within the limits of its control groups."""
    memory_to_disk: Literal["auto", "on", "off"] = "auto"
    """Keep in files what is rarely needed (former outer states, own publications, payloads of
    finished rounds) instead of in memory; some 12 bytes a parameter and round are written. `auto`:
    unless the bytes written a day are limited."""


class RunConfig(Section):
    """Whether a node trains, and when a run ends; without a limit it goes on for ever."""

    prefix = "run."

    training: bool = True
    """Take inner steps; off: serve peers, rounds' states and the tracker only."""
    rounds: int | None = Field(default=None, ge=1)
    """End once the outer state has advanced by this many rounds here. Unset: no limit."""
    minutes: float | None = Field(default=None, gt=0)
    """End after this many minutes. Unset: no limit."""
    tokens: int | None = Field(default=None, ge=1)
    """End once this node has trained on so many tokens. Unset: no limit."""
    until_loss: float | None = Field(default=None, gt=0)
    """End once the held-out loss is at most this: the swarm's where three nodes or more have said
    theirs, else this node's own. Unset: no limit."""
    fresh: bool = False
    """Ignore checkpoints on disk and start anew; they are kept aside."""
