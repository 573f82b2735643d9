"""The relay's side of all pipes: who is attached, which pipes join whom, and the bounds on both.

A receiver grants each pipe a window of bytes; what a sender sends beyond it ends the pipe, so that
a relay holds at most one window a pipe and direction, whoever is slow. Knows no sockets, no clock,
and not what the bytes mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuroswarm.errors import PeerError, ProtocolViolation
from neuroswarm.relay.frame_queue import FrameQueue
from neuroswarm.values import NodeId
from neuroswarm.wire.limits import PIPE_WINDOW_BYTES
from neuroswarm.wire.relaying import MAX_PIPE_NUMBER, Attachment, Frame


@dataclass(frozen=True, slots=True)
class RelayBounds:
    """What a relay bears."""

    max_lines: int = 128
    """Nodes attached at once."""
    max_pipes: int = 1024
    """Pipes at once."""
    max_pipes_per_opener: int = 64
    """Pipes that one node has opened."""
    max_pipes_per_line: int = 256
    """Pipes of one attached node, opened by it or by others."""
    max_buffered_bytes: int = 64 * 1024 * 1024
    """Bytes held for all of them together."""


@dataclass(eq=False, slots=True)
class _Joint:
    """One attached node's end of a pipe."""

    line: Line
    number: int
    """The pipe's number on that line."""
    opener: NodeId
    other: _Joint | None = None
    in_flight: int = 0
    """Bytes that came from this end, for which the other has not given credit yet."""
    is_flushed: bool = False
    """Whether nothing is held for this end any more."""


class Line:
    """One attached node."""

    def __init__(self, client: NodeId, attachment: Attachment, on_ready: Callable[[], None]):
        self.client = client
        self.session = attachment.session
        self.takes_pipes = attachment.takes_pipes
        self.queue = FrameQueue(on_ready, self._flushed)
        self.joints: dict[int, _Joint] = {}
        self.last_opened = -1
        """The greatest number of a pipe that the node has opened."""
        self.last_given = 0
        """The greatest number that the relay has given to a pipe towards it."""
        self._ending: dict[int, Callable[[], None]] = {}

    def end(self, number: int, then: Callable[[], None]) -> None:
        """Tell the node that a pipe is over, and call `then` once that is on its way."""
        self._ending[number] = then
        self.queue.end(number)

    def give_up(self) -> None:
        """Count all that waits as given out: nobody is there to take it."""
        for number in list(self._ending):
            self._flushed(number)

    def _flushed(self, number: int) -> None:
        then = self._ending.pop(number, None)
        if then is not None:
            then()


class Switchboard:
    """Joins the pipes of attached nodes."""

    def __init__(self, bounds: RelayBounds | None = None) -> None:
        self._bounds = bounds or RelayBounds()
        self._lines: dict[NodeId, Line] = {}
        self._opened: Counter[NodeId] = Counter()
        self.num_bytes = 0
        """Bytes of data relayed so far."""
        self.num_refused = 0
        """Pipes not opened, for want of room or of the one to be reached."""
        self.num_cut = 0
        """Pipes ended since a node sent more than it was allowed to."""

    @property
    def num_lines(self) -> int:
        """Nodes attached."""
        return len(self._lines)

    @property
    def num_pipes(self) -> int:
        """Pipes that are open, or of which something is still held."""
        return self._opened.total()

    @property
    def num_buffered(self) -> int:
        """Bytes held for all of them."""
        return sum(line.queue.num_bytes for line in self._lines.values())

    def find(self, client: NodeId) -> Line | None:
        """The line of an attached node."""
        return self._lines.get(client)

    def attach(self, client: NodeId, attachment: Attachment, on_ready: Callable[[], None]) -> Line:
        """Attach a node; what it had under another session ends.

        Raises:
            PeerError: as many nodes are attached as this relay bears.
        """
        known = self._lines.get(client)
        if known is not None:
            self.detach(known)
        if len(self._lines) >= self._bounds.max_lines:
            raise PeerError(f"too many nodes attached here (limit {self._bounds.max_lines})")
        line = self._lines[client] = Line(client, attachment, on_ready)
        return line

    def detach(self, line: Line) -> None:
        """Forget a node: all its pipes end."""
        if self._lines.get(line.client) is line:
            del self._lines[line.client]
        for joint in list(line.joints.values()):
            self._end(joint)
        line.give_up()

    def take(self, line: Line, frames: Sequence[Frame]) -> None:
        """Carry out what an attached node sent; what it must not do ends its pipe.

        Raises:
            ProtocolViolation: it numbers pipes wrongly.
            PeerError: it opens many without hearing of them.
        """
        buffered = self.num_buffered
        for frame in frames:
            if frame.open is not None:
                self._open(line, frame.pipe, frame.open)
            joint = line.joints.get(frame.pipe)
            if joint is not None:  # else it ended a moment ago
                buffered += len(frame.data)
                self._carry(joint, frame, has_room=buffered <= self._bounds.max_buffered_bytes)

    def _open(self, line: Line, number: int, target: NodeId) -> None:
        if number % 2 == 0 or number <= line.last_opened:
            raise ProtocolViolation(f"pipe number {number} after {line.last_opened}")
        if len(line.queue) > 2 * self._bounds.max_pipes_per_line:
            raise PeerError(f"opens pipes, but takes nothing: {len(line.queue)} wait")
        line.last_opened = number
        there = self._lines.get(target)
        if there is None or not there.takes_pipes or not self._has_room(line, there):
            self.num_refused += 1
            line.queue.end(number)
            return
        there.last_given += 2
        here = _Joint(line, number, line.client)
        here.other = _Joint(there, there.last_given, line.client, here)
        line.joints[number], there.joints[there.last_given] = here, here.other
        self._opened[line.client] += 1
        there.queue.open(there.last_given, line.client)

    def _has_room(self, line: Line, there: Line) -> bool:
        bounds = self._bounds
        return (
            self._opened[line.client] < bounds.max_pipes_per_opener
            and self.num_pipes < bounds.max_pipes
            and max(len(line.joints), len(there.joints)) < bounds.max_pipes_per_line
            and there.last_given + 2 <= MAX_PIPE_NUMBER
            and line is not there
        )

    def _carry(self, joint: _Joint, frame: Frame, *, has_room: bool) -> None:
        other = joint.other
        assert other is not None, "both ends are made together"
        if frame.credit:
            other.in_flight -= frame.credit
            other.line.queue.add_credit(other.number, frame.credit)
        if frame.data:
            joint.in_flight += len(frame.data)
        if other.in_flight < 0 or joint.in_flight > PIPE_WINDOW_BYTES or not has_room:
            self.num_cut += 1
            self._end(joint)
            return
        if frame.data:
            self.num_bytes += len(frame.data)
            other.line.queue.add_data(other.number, frame.data)
        if frame.is_end:
            self._end(joint, tell=False)

    def _end(self, joint: _Joint, *, tell: bool = True) -> None:
        """End a pipe from one of its ends; the other is told after what waits for it."""
        other = joint.other
        assert other is not None, "both ends are made together"
        for end in (joint, other):
            end.line.joints.pop(end.number, None)
        joint.line.queue.drop_data(joint.number)
        if tell:
            joint.line.end(joint.number, lambda: self._flush(joint))
        else:
            joint.is_flushed = True
        other.line.end(other.number, lambda: self._flush(other))
        for end in (joint, other):
            if self._lines.get(end.line.client) is not end.line:
                end.line.give_up()

    def _flush(self, joint: _Joint) -> None:
        """Once nothing of either end is held, the opener may open another pipe."""
        joint.is_flushed = True
        other = joint.other
        if other is not None and other.is_flushed:
            joint.other = other.other = None
            self._opened[joint.opener] -= 1
            if not self._opened[joint.opener]:
                del self._opened[joint.opener]
