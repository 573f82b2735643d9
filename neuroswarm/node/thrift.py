"""What a node on a metered link leaves out: contributions and donations.

Knows no byte counts (`neuroswarm.metering`) and not how rounds work.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from neuroswarm.config import RoundConfig
from neuroswarm.gossip.archive import Entry
from neuroswarm.metering.framing import estimate_calls
from neuroswarm.metering.meter import Meter
from neuroswarm.metering.upload_limit import SMALL_BYTES
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

logger = logging.getLogger(__name__)


class Thrift:
    """Decides, round for round, whether this node contributes."""

    def __init__(self, meter: Meter, cfg: RoundConfig) -> None:
        """Ask this meter; `cfg` has the patience that peers are taken to have."""
        self._meter = meter
        self._cfg = cfg
        self._passed_over = 0
        self._is_slow = False
        self.num_skipped = 0
        """Rounds skipped to save traffic."""

    @property
    def max_inline_bytes(self) -> int:
        """Payload that is pushed with its header.

        With an upload limit only what does not make the push wait: statements travel in it too.
        """
        is_limited = self._meter.limit.bytes_per_s is not None
        return SMALL_BYTES // 2 if is_limited else limits.MAX_INLINE_BYTES

    def giving_s(self, entry: Entry | None, peers: Collection[NodeId]) -> float:
        """Time that the upload limit takes for a payload, if some of the peers have not got it.

        Args:
            entry: This node's contribution to the round; None without one.
            peers: Who takes part besides this node.
        """
        rate = self._meter.limit.bytes_per_s
        if rate is None or entry is None or entry.header.payload_bytes <= self.max_inline_bytes:
            return 0.0
        if entry.given_to.issuperset(peers):
            return 0.0
        return len(peers) * estimate_calls(entry.header.payload_bytes, 1) / rate

    def steps_towards(self, inner_steps: int) -> int:
        """Inner steps that count towards readiness: those since the last round left out.

        Else a node that keeps its work for later would be ready at the beginning of every round,
        and hurry the others on to rounds of no length.
        """
        if inner_steps < self._passed_over:
            self._passed_over = 0  # it has published
        return inner_steps - self._passed_over

    def must_skip(self, payload_bytes: int, num_peers: int, inner_steps: int) -> bool:
        """Whether to publish nothing in this round.

        Args:
            payload_bytes: Size of the contribution.
            num_peers: Peers that would pull it, most of them from this node.
            inner_steps: Steps since the last publication; they are kept for a later one.
        """
        cost = num_peers * estimate_calls(payload_bytes, 1)
        must = self._is_too_slow(payload_bytes, num_peers) or not self._meter.may_spend(cost)
        if must:
            self._passed_over = inner_steps
            self.num_skipped += 1
        return must

    def _is_too_slow(self, payload_bytes: int, num_peers: int) -> bool:
        """Whether the peers would give up before they had it, as far as the limit is to blame."""
        rate, cfg = self._meter.limit.bytes_per_s, self._cfg
        if rate is None or payload_bytes <= self.max_inline_bytes:
            return False
        first = min(payload_bytes, limits.MAX_CHUNK_BYTES)
        least = num_peers * max(first / cfg.pull_stall_s, payload_bytes / cfg.pull_timeout_s)
        was_slow, self._is_slow = self._is_slow, least > rate
        if self._is_slow and not was_slow:
            logger.warning(
                "max_upload %.0f kB/s is too little for a contribution of %.0f kB to %d peers: "
                "none is made (it takes %.0f kB/s); training goes on",
                rate / 1e3,
                payload_bytes / 1e3,
                num_peers,
                least / 1e3,
            )
        return self._is_slow

    def get_status(self) -> Mapping[str, object]:
        """The part of `/status` on traffic, as JSON values."""
        return {**self._meter.get_status(), "rounds_skipped_total": self.num_skipped}


class MeteredUplink:
    """What a state donor may take of the link: `transfer.donor.Uplink`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def may_give(self, num_bytes: int) -> bool:
        """Whether so many bytes leave the reserve untouched."""
        return self._meter.may_spend(estimate_calls(num_bytes, 1))

    async def take(self, num_bytes: int) -> float:
        """Wait until a message of so many bytes may go; returns for how many seconds."""
        return await self._meter.limit.take(num_bytes)
