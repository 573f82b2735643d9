"""What waits to be sent on the pipes of one session: merged by pipe, given out in turns.

Knows no sockets. What it holds is bounded by its users: bytes by the pipes' windows, the rest by
the number of pipes, as credit adds up in one number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import Frame


@dataclass(slots=True)
class _Pending:
    open: NodeId | None = None
    credit: int = 0
    data: bytearray = field(default_factory=bytearray)
    is_end: bool = False


class FrameQueue:
    """Frames to be made, one pipe after the other, 32 KiB each in turn."""

    def __init__(
        self, on_ready: Callable[[], None], on_end: Callable[[int], None] = lambda _pipe: None
    ) -> None:
        """Start empty.

        Args:
            on_ready: Called whenever something was added.
            on_end: Called with a pipe's number once its end was given out, so that nothing of
                it is held here any more.
        """
        self._on_ready = on_ready
        self._on_end = on_end
        self._pending: OrderedDict[int, _Pending] = OrderedDict()
        self.num_bytes = 0
        """Bytes of data that wait."""

    def __len__(self) -> int:
        return len(self._pending)

    def waiting(self, pipe: int) -> int:
        """Bytes of data that wait on one pipe."""
        pending = self._pending.get(pipe)
        return 0 if pending is None else len(pending.data)

    def open(self, pipe: int, node_id: NodeId) -> None:
        """Say that a pipe begins."""
        self._of(pipe).open = node_id

    def add_credit(self, pipe: int, num_bytes: int) -> None:
        """Say that so many more bytes may come."""
        self._of(pipe).credit += num_bytes

    def add_data(self, pipe: int, data: bytes) -> None:
        """Send bytes after those that wait already."""
        self._of(pipe).data += data
        self.num_bytes += len(data)

    def end(self, pipe: int) -> None:
        """Say that a pipe is over, after what waits on it."""
        self._of(pipe).is_end = True

    def drop_data(self, pipe: int) -> None:
        """Forget the bytes that wait on a pipe."""
        pending = self._pending.get(pipe)
        if pending is not None:
            self.num_bytes -= len(pending.data)
            pending.data.clear()

    def take_batch(self) -> list[Frame]:
        """The next frames, as many as one message holds; empty if nothing waits."""
        frames: list[Frame] = []
        room = limits.MAX_BATCH_DATA_BYTES
        while self._pending and room > 0 and len(frames) < limits.MAX_FRAMES:
            pipe, pending = self._pending.popitem(last=False)
            size = min(len(pending.data), room, limits.MAX_FRAME_DATA_BYTES)
            frames.append(self._cut(pipe, pending, size))
            room -= size
        return frames

    def _cut(self, pipe: int, pending: _Pending, size: int) -> Frame:
        """Make one frame with `size` bytes; what is left waits for its next turn."""
        credit = min(pending.credit, limits.PIPE_WINDOW_BYTES)
        data = bytes(pending.data[:size])
        del pending.data[:size]
        self.num_bytes -= size
        is_all = not pending.data and pending.credit == credit
        frame = Frame(pipe, pending.open, credit, data, pending.is_end and is_all)
        if not is_all:
            self._pending[pipe] = _Pending(
                None, pending.credit - credit, pending.data, pending.is_end
            )
        elif pending.is_end:
            self._on_end(pipe)
        return frame

    def _of(self, pipe: int) -> _Pending:
        pending = self._pending.setdefault(pipe, _Pending())
        self._on_ready()
        return pending
