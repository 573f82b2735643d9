"""Keeps this node attached to relays: those it is reached through, and those of peers it calls.

Refuses to know which peers need a relay, and what the pipes carry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Protocol

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.relay.desk import ATTACH, ATTACHED_S, PUSH, RelayDesk
from neuroswarm.relay.session import PipeEnd, Session
from neuroswarm.service import Service, State
from neuroswarm.transport import Rpc
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import Attachment, Frame, decode_frames, encode_frames

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at whether relays are missing."""

AVOID_S = 15.0
"""Seconds for which a relay that refused, or was lost, is not taken."""

IDLE_S = 60.0
"""Seconds after which a relay without pipes, through which nobody reaches this node, is left."""

PUSH_PAUSE_S = 0.02
"""Least time between two messages to a relay; each takes all that waits."""

_PUSH_TIMEOUT_S = 40.0
_ATTACH_TIMEOUT_S = ATTACHED_S + 60.0


class Wire(Protocol):
    """Carries one session's frames to and from a relay."""

    def receive(self, attachment: Attachment) -> AsyncGenerator[list[Frame], None]:
        """What the relay sends; ends in good order after some minutes, to be called again."""
        ...

    async def push(self, session: bytes, frames: Sequence[Frame]) -> None:
        """Send."""
        ...


class RelayWire:
    """To a relay that is another node."""

    def __init__(self, rpc: Rpc, relay: PeerAddress) -> None:
        self._rpc = rpc
        self._relay = relay

    async def receive(self, attachment: Attachment) -> AsyncGenerator[list[Frame], None]:
        """What the relay sends."""
        messages = self._rpc.stream(
            self._relay, ATTACH, attachment.encode(), timeout_s=_ATTACH_TIMEOUT_S
        )
        assert isinstance(messages, AsyncGenerator), "every transport's stream can be closed"
        async with aclosing(messages):
            async for message in messages:
                session, frames = decode_frames(message)
                if session == attachment.session:
                    yield frames

    async def push(self, session: bytes, frames: Sequence[Frame]) -> None:
        """Send."""
        await self._rpc.call(
            self._relay, PUSH, encode_frames(session, frames), timeout_s=_PUSH_TIMEOUT_S
        )


class OwnWire:
    """To this node itself, as the relay of the peer that it calls."""

    def __init__(self, desk: RelayDesk, me: NodeId) -> None:
        self._desk = desk
        self._me = me

    def receive(self, attachment: Attachment) -> AsyncGenerator[list[Frame], None]:
        """What comes from others."""
        return self._desk.receive(self._me, attachment)

    async def push(self, session: bytes, frames: Sequence[Frame]) -> None:
        """Send."""
        self._desk.take(self._me, session, frames)


class RelayLines(Service):
    """All sessions of this node, by relay."""

    name = "relay lines"

    def __init__(
        self,
        rpc: Rpc,
        desk: RelayDesk,
        *,
        me: NodeId,
        find: Callable[[NodeId], PeerAddress | None],
        clock: Clock,
    ) -> None:
        """Wire it up.

        Args:
            rpc: Carries the calls to relays.
            desk: This node's own half, for peers that it relays for itself.
            me: This node.
            find: Where a relay is, if it is known and called without a relay of its own.
            clock: Tells the time and waits.
        """
        super().__init__()
        self._rpc = rpc
        self._desk = desk
        self._me = me
        self._find = find
        self._clock = clock
        self._sessions: dict[NodeId, Session] = {}
        self._avoided: dict[NodeId, float] = {}
        self._used_at: dict[NodeId, float] = {}
        self.on_pipe: Callable[[PipeEnd], None] = PipeEnd.close
        """Takes pipes that others open to this node."""
        self.on_change: Callable[[], None] = _nothing
        """Called when `relays` has changed."""
        self.candidates: Callable[[], Sequence[NodeId]] = tuple
        """Whom to take as relays, best first; empty if this node needs none."""
        self.may_keep: Callable[[NodeId], bool] = lambda _relay: False
        """Whether to go on with a relay that was taken."""

    @property
    def relays(self) -> tuple[NodeId, ...]:
        """Through whom others reach this node, at most `limits.MAX_RELAYS`."""
        sessions = self._sessions.items()
        return tuple(sorted(r for r, s in sessions if s.takes_pipes and s.is_attached))

    @property
    def num_pipes(self) -> int:
        """Pipes of this node, opened by it or by others."""
        return sum(session.num_pipes for session in self._sessions.values())

    def open(self, target: NodeId, relays: Sequence[NodeId]) -> PipeEnd:
        """Begin a pipe through one of a peer's relays.

        One that is this node itself comes first, then those to which it is attached.

        Raises:
            PeerUnreachable: none of them can be called.
        """
        if self.state is not State.RUNNING:
            raise PeerUnreachable("this node is stopping", peer=target)
        now = self._clock.monotonic()
        usable = [r for r in relays if now >= self._avoided.get(r, now) and self._is_near(r)]
        usable.sort(key=lambda relay: (relay != self._me, relay not in self._sessions))
        for relay in usable:
            session = self._sessions.get(relay) or self._attach(relay, takes_pipes=False)
            self._used_at[relay] = now
            if not session.is_lost:
                pipe = session.open(target)
                pipe.relay = relay
                return pipe
        raise PeerUnreachable("none of its relays can be called", peer=target)

    def avoid(self, relay: NodeId) -> None:
        """Do not use a relay for a while."""
        self._avoided[relay] = self._clock.monotonic() + AVOID_S

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._lose_all)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._look_after(),)

    async def _look_after(self) -> None:
        while True:
            now = self._clock.monotonic()
            self._avoided = {r: until for r, until in self._avoided.items() if now < until}
            wanted = self.candidates()
            self._leave_idle(now)
            self._take_relays(wanted)
            await self._clock.sleep(LOOK_S)

    def _take_relays(self, wanted: Sequence[NodeId]) -> None:
        held = [r for r, session in self._sessions.items() if session.takes_pipes]
        fresh = [r for r in wanted if r not in held and r not in self._avoided and self._is_near(r)]
        for relay in fresh[: max(0, limits.MAX_RELAYS - len(held))]:
            if relay in self._sessions:
                self._lose(relay)  # it was only called through
            self._attach(relay, takes_pipes=True)

    def _leave_idle(self, now: float) -> None:
        for relay, session in list(self._sessions.items()):
            if session.takes_pipes:
                is_needed = self.may_keep(relay)
            else:
                is_needed = session.num_pipes > 0 or now < self._used_at[relay] + IDLE_S
            if not is_needed:
                self._lose(relay)

    def _is_near(self, relay: NodeId) -> bool:
        return relay == self._me or self._find(relay) is not None

    def _attach(self, relay: NodeId, *, takes_pipes: bool) -> Session:
        session = Session(on_pipe=self.on_pipe if takes_pipes else None)
        self._sessions[relay] = session
        self._used_at[relay] = self._clock.monotonic()
        address = None if relay == self._me else self._find(relay)
        wire: Wire = OwnWire(self._desk, self._me)
        if address is not None:
            wire = RelayWire(self._rpc, address)
        self._spawn(self._receive(relay, session, wire))
        self._spawn(self._send(relay, session, wire))
        return session

    async def _receive(self, relay: NodeId, session: Session, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as patience:
                session.on_lost = lambda: patience.reschedule(loop.time())
                await self._receive_all(relay, session, wire)
        except PeerError as error:
            logger.debug("relay %s lost: %s", relay, error)
            self.avoid(relay)
        except TimeoutError:
            if not session.is_lost:
                raise  # nobody ended it
        finally:
            session.on_lost = _nothing
            self._lose(relay, session)

    async def _receive_all(self, relay: NodeId, session: Session, wire: Wire) -> None:
        attachment = Attachment(session.name, session.takes_pipes)
        while True:
            async with aclosing(wire.receive(attachment)) as batches:
                async for frames in batches:
                    self._note_attached(relay, session)
                    session.take(frames)

    async def _send(self, relay: NodeId, session: Session, wire: Wire) -> None:
        try:
            await session.attached.wait()
            while not session.is_lost:
                session.ready.clear()
                if frames := session.queue.take_batch():
                    await wire.push(session.name, frames)
                    await self._clock.sleep(PUSH_PAUSE_S)
                else:
                    await session.ready.wait()
        except PeerError as error:
            logger.debug("relay %s takes nothing: %s", relay, error)
            self.avoid(relay)
        finally:
            self._lose(relay, session)

    def _note_attached(self, relay: NodeId, session: Session) -> None:
        if session.attached.is_set():
            return
        session.attached.set()
        if session.takes_pipes:
            logger.info("reached through relay %s", relay)
            self.on_change()

    def _lose(self, relay: NodeId, session: Session | None = None) -> None:
        known = self._sessions.get(relay)
        if known is None or (session is not None and known is not session):
            return
        is_change = known.takes_pipes and known.is_attached
        del self._sessions[relay]
        self._used_at.pop(relay, None)
        known.lose()
        if is_change:
            self.on_change()

    def _lose_all(self) -> None:
        self.on_change = _nothing
        for relay in list(self._sessions):
            self._lose(relay)


def _nothing() -> None:
    pass
