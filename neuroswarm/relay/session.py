"""A node's side of the pipes through one relay: windows, buffers, and what waits to be sent.

Knows no calls; `neuroswarm.relay.lines` carries the frames.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from neuroswarm.errors import PeerUnreachable
from neuroswarm.relay.frame_queue import FrameQueue
from neuroswarm.values import NodeId
from neuroswarm.wire.limits import MAX_FRAME_DATA_BYTES, PIPE_WINDOW_BYTES
from neuroswarm.wire.relaying import SESSION_BYTES, Frame

MAX_PIPES_TAKEN = 128
"""Pipes that others may have open to this node through one relay; further ones end at once."""

_CREDIT_STEP_BYTES = PIPE_WINDOW_BYTES // 4


class PipeEnd:
    """This node's end of one pipe: `transport.Pipe`."""

    def __init__(self, peer: NodeId, number: int, queue: FrameQueue) -> None:
        self.peer = peer
        """Who is at the other end, by the relay's word; TLS within the pipe proves it."""
        self.number = number
        self.relay: NodeId | None = None
        """Through whom it goes, if this node opened it."""
        self.has_received = False
        """Whether anything came at all."""
        self._queue = queue
        self._received = bytearray()
        self._unsaid_credit = 0
        self._may_send = PIPE_WINDOW_BYTES
        self._changed = asyncio.Event()
        self.is_over = False

    async def read(self) -> bytes:
        """The next bytes, at most 256 KiB; empty once the pipe is over.

        Cancellation: nothing is lost.
        """
        while not self._received:
            if self.is_over:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._received)
        self._received.clear()
        self._unsaid_credit += len(data)
        if self._unsaid_credit >= _CREDIT_STEP_BYTES and not self.is_over:
            self._queue.add_credit(self.number, self._unsaid_credit)
            self._unsaid_credit = 0
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, once the other end is ready to take them.

        Raises:
            PeerUnreachable: the pipe is over.

        Cancellation: some of the bytes may be on their way.
        """
        sent = 0
        while sent < len(data):
            if self.is_over:
                raise PeerUnreachable("the pipe is over", peer=self.peer)
            part = data[sent : sent + min(self._may_send, MAX_FRAME_DATA_BYTES)]
            if part:
                self._may_send -= len(part)
                sent += len(part)
                self._queue.add_data(self.number, part)
            else:
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        """End the pipe; what was written before still goes out."""
        if not self.is_over:
            self._queue.end(self.number)
            self.finish()

    def finish(self) -> None:
        """The pipe is over, by the relay's word or since the relay is lost."""
        self.is_over = True
        self._changed.set()

    def take(self, frame: Frame) -> bool:
        """Take what came; whether the other side kept its bounds."""
        self._may_send += frame.credit
        self._received += frame.data
        self.has_received |= bool(frame.data)
        self._changed.set()
        is_within = len(self._received) + self._unsaid_credit <= PIPE_WINDOW_BYTES
        return is_within and self._may_send <= PIPE_WINDOW_BYTES


class Session:
    """All pipes through one relay, from one attachment to its loss."""

    def __init__(self, *, on_pipe: Callable[[PipeEnd], None] | None) -> None:
        """Draw a name.

        Args:
            on_pipe: Takes the pipes that others open; None if they may not.
        """
        self.name = secrets.token_bytes(SESSION_BYTES)
        self.takes_pipes = on_pipe is not None
        self._on_pipe = on_pipe
        self._pipes: dict[int, PipeEnd] = {}
        self._next = 1
        self._taken = 0
        self.is_lost = False
        self.on_lost: Callable[[], None] = _nothing
        """Called once when it is lost."""
        self.attached = asyncio.Event()
        """Set once the relay has answered, or is lost."""
        self.ready = asyncio.Event()
        """Set when something waits to be sent, or the relay is lost."""
        self.queue = FrameQueue(self.ready.set, self._forget)

    @property
    def is_attached(self) -> bool:
        """Whether the relay has answered and is not lost."""
        return self.attached.is_set() and not self.is_lost

    @property
    def num_pipes(self) -> int:
        """Pipes that are open, or whose end is not sent yet."""
        return len(self._pipes)

    def open(self, target: NodeId) -> PipeEnd:
        """Begin a pipe; if the relay refuses, it is over before anything comes.

        Raises:
            PeerUnreachable: the relay is lost.
        """
        if self.is_lost:
            raise PeerUnreachable("the relay is lost", peer=target)
        number, self._next = self._next, self._next + 2
        pipe = self._pipes[number] = PipeEnd(target, number, self.queue)
        self.queue.open(number, target)
        return pipe

    def take(self, frames: Sequence[Frame]) -> None:
        """Take what the relay sent; a pipe on which it breaks the rules ends."""
        for frame in frames:
            if frame.open is not None:
                self._take_pipe(frame.pipe, frame.open)
            pipe = self._pipes.get(frame.pipe)
            if pipe is None:
                continue
            is_within = pipe.is_over or pipe.take(frame)
            if frame.is_end:
                del self._pipes[frame.pipe]
                pipe.finish()
            elif not is_within:
                pipe.close()

    def lose(self) -> None:
        """The relay is lost: all pipes are over."""
        if self.is_lost:
            return
        self.is_lost = True
        for pipe in self._pipes.values():
            pipe.finish()
        self._pipes.clear()
        self.attached.set()
        self.ready.set()
        self.on_lost()

    def _take_pipe(self, number: int, opener: NodeId) -> None:
        if number % 2 or number <= self._taken:
            return  # no relay that keeps the rules does that
        self._taken = number
        pipe = PipeEnd(opener, number, self.queue)
        num_taken = sum(number % 2 == 0 for number in self._pipes)
        if self._on_pipe is None or num_taken >= MAX_PIPES_TAKEN:
            pipe.close()
            return
        self._pipes[number] = pipe
        self._on_pipe(pipe)

    def _forget(self, number: int) -> None:
        self._pipes.pop(number, None)


def _nothing() -> None:
    pass
