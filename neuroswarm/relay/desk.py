"""Relays for others: answers the calls of attached nodes, and bounds what each of them takes.

Refuses to know what is in a pipe, and to relay for a node that is not attached.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from neuroswarm.clock import Clock
from neuroswarm.config.sections import RelayConfig
from neuroswarm.errors import PeerError, ProtocolViolation
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.relay.switchboard import Line, Switchboard
from neuroswarm.transport import Rpc
from neuroswarm.v1 import relay_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import (
    Attachment,
    Frame,
    decode_attachment,
    decode_frames,
    encode_frames,
)

ATTACH = "Relay/Attach"
PUSH = "Relay/Push"

ATTACHED_S = 480.0
"""Seconds after which a relay ends an attachment in good order, to be taken up again at once: no
call lasts longer than 600 s."""

RESUME_S = 15.0
"""Seconds for taking it up again; what is on its pipes waits so long."""

BURST_S = 2.0
"""Seconds of its rate that a node may send at once, at least one message."""


@dataclass(slots=True)
class _Attached:
    line: Line
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    resumable_until: float | None = None
    """Instant until which it may be taken up again; None while it is in use."""


class RelayDesk:
    """The answering half of the Relay service, and this node's own line to itself."""

    def __init__(
        self,
        config: RelayConfig,
        rpc: Rpc,
        board: Switchboard,
        *,
        blame: Callable[[NodeId], None],
        clock: Clock,
    ) -> None:
        """Register the handlers; the transport must not have started.

        Args:
            config: Whether and how much to relay.
            rpc: Carries the calls of attached nodes.
            board: Joins their pipes.
            blame: Told of a caller that sent what no correct node does.
            clock: Tells the time and waits.
        """
        self._blame = blame
        self.board = board
        self.may_relay: Callable[[], bool] = _always
        """Whether others may send through this node now."""
        self._config = config
        self._clock = clock
        self._attached: dict[NodeId, _Attached] = {}
        rate = config.max_mbit_per_node * 1e6 / 8
        self._rate: TokenBuckets[NodeId] = TokenBuckets(
            per_s=rate, burst=max(BURST_S * rate, limits.MAX_FRAMES_BYTES)
        )
        rpc.serve_stream(ATTACH, self._on_attach)
        rpc.serve_unary(PUSH, self._on_push)

    def get_status(self) -> dict[str, object]:
        """The part of `/status` on what is relayed for others."""
        return {
            "nodes": self.board.num_lines,
            "pipes": self.board.num_pipes,
            "bytes": self.board.num_bytes,
            "refused": self.board.num_refused,
            "cut": self.board.num_cut,
        }

    async def receive(
        self, client: NodeId, attachment: Attachment
    ) -> AsyncGenerator[list[Frame], None]:
        """What comes for an attached node: at first nothing, which says that it is attached.

        Ends in good order after `ATTACHED_S`; otherwise the node's pipes end with it.

        Raises:
            PeerError: as many nodes are attached as this relay bears.
        """
        attached = self._take_up(client, attachment)
        until = self._clock.monotonic() + ATTACHED_S
        try:
            yield []
            while (left_s := until - self._clock.monotonic()) > 0:
                attached.ready.clear()
                if batch := attached.line.queue.take_batch():
                    yield batch
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await attached.ready.wait()
                if self._attached.get(client) is not attached:
                    return  # the node has attached anew
            attached.resumable_until = self._clock.monotonic() + RESUME_S
        finally:
            if attached.resumable_until is None:
                self._let_go(attached)

    def take(self, client: NodeId, session: bytes, frames: Sequence[Frame]) -> None:
        """Carry out what an attached node sent.

        Raises:
            PeerError: it is not attached under that session.
            ProtocolViolation: it numbers pipes wrongly.
        """
        attached = self._attached.get(client)
        if attached is None or attached.line.session != session:
            raise PeerError("not attached here")
        self.board.take(attached.line, frames)

    def _take_up(self, client: NodeId, attachment: Attachment) -> _Attached:
        now = self._clock.monotonic()
        for other in list(self._attached.values()):
            if other.resumable_until is not None and now > other.resumable_until:
                self._let_go(other)
        known = self._attached.get(client)
        if known is not None:
            if known.line.session == attachment.session and known.resumable_until is not None:
                known.resumable_until = None
                return known
            self._let_go(known)
        ready = asyncio.Event()
        line = self.board.attach(client, attachment, ready.set)
        attached = self._attached[client] = _Attached(line, ready)
        return attached

    def _let_go(self, attached: _Attached) -> None:
        client = attached.line.client
        if self._attached.get(client) is attached:
            del self._attached[client]
        self.board.detach(attached.line)
        attached.ready.set()

    @contextlib.contextmanager
    def _blamed(self, caller: NodeId) -> Iterator[None]:
        try:
            yield
        except ProtocolViolation:
            self._blame(caller)
            raise

    async def _on_attach(self, caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        with self._blamed(caller):
            attachment = decode_attachment(data)
        self._require_relaying()
        batches = self.receive(caller, attachment)
        try:
            async for batch in batches:
                yield encode_frames(attachment.session, batch)
        finally:
            await batches.aclose()

    def _require_relaying(self) -> None:
        if not self._config.enabled:
            raise PeerError("this node relays for nobody (relay.enabled is off)")
        if not self.may_relay():
            raise PeerError("this node relays for nobody now: its data cap is near")

    async def _on_push(self, caller: NodeId, data: bytes) -> bytes:
        with self._blamed(caller):
            session, frames = decode_frames(data)
        while not self._rate.allows(caller, self._clock.monotonic(), len(data)):
            await self._clock.sleep(len(data) * 8e-6 / self._config.max_mbit_per_node)
        with self._blamed(caller):
            self.take(caller, session, frames)
        return relay_pb2.RelayReply().SerializeToString()


def _always() -> bool:
    return True
