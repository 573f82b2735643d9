"""Frames of relayed pipes: bytes to values, checked.

Refuses to know which pipes there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.v1 import relay_pb2
from neuroswarm.values import NODE_ID_BYTES, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

SESSION_BYTES = 8
MAX_PIPE_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Frame:
    """What happens on one pipe: it begins, may take more, brings bytes, ends; in this order."""

    pipe: int
    open: NodeId | None = None
    credit: int = 0
    data: bytes = b""
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """Who is attached to a relay under which session."""

    session: bytes
    takes_pipes: bool

    def encode(self) -> bytes:
        """The wire form."""
        return relay_pb2.AttachRequest(
            session=self.session, takes_pipes=self.takes_pipes
        ).SerializeToString()


def decode_attachment(data: bytes) -> Attachment:
    """Read a request; SchemaMismatch if it is malformed."""
    m = parse(relay_pb2.AttachRequest, data)
    _check_session(m.session)
    return Attachment(m.session, m.takes_pipes)


def encode_frames(session: bytes, frames: Iterable[Frame]) -> bytes:
    """The wire form of some frames."""
    message = relay_pb2.RelayFrames(session=session)
    for frame in frames:
        message.frames.add(
            pipe=frame.pipe,
            open=frame.open or b"",
            credit=frame.credit,
            data=frame.data,
            is_end=frame.is_end,
        )
    return message.SerializeToString()


def decode_frames(data: bytes) -> tuple[bytes, list[Frame]]:
    """The session and its frames.

    Raises:
        MessageTooLarge: too many frames, too much data, a number or credit out of range.
        SchemaMismatch: malformed.
    """
    if len(data) > limits.MAX_FRAMES_BYTES:
        raise MessageTooLarge(f"frames: {len(data)} bytes (limit {limits.MAX_FRAMES_BYTES})")
    m = parse(relay_pb2.RelayFrames, data)
    _check_session(m.session)
    if len(m.frames) > limits.MAX_FRAMES:
        raise MessageTooLarge(f"frames: {len(m.frames)} (limit {limits.MAX_FRAMES})")
    return m.session, [_read_frame(frame) for frame in m.frames]


def _read_frame(m: relay_pb2.RelayFrame) -> Frame:
    if not 0 < m.pipe <= MAX_PIPE_NUMBER:
        raise MessageTooLarge(f"pipe number out of range: {m.pipe} (1 to {MAX_PIPE_NUMBER})")
    if len(m.data) > limits.MAX_FRAME_DATA_BYTES:
        raise MessageTooLarge(
            f"data of a frame: {len(m.data)} bytes (limit {limits.MAX_FRAME_DATA_BYTES})"
        )
    if m.credit > limits.PIPE_WINDOW_BYTES:
        raise MessageTooLarge(f"credit: {m.credit} bytes (limit {limits.PIPE_WINDOW_BYTES})")
    if len(m.open) not in (0, NODE_ID_BYTES):
        raise SchemaMismatch(f"node id of a pipe: {len(m.open)} bytes (needs {NODE_ID_BYTES})")
    target = NodeId(m.open) if m.open else None
    return Frame(m.pipe, target, m.credit, m.data, m.is_end)


def _check_session(session: bytes) -> None:
    if len(session) != SESSION_BYTES:
        raise SchemaMismatch(f"session: {len(session)} bytes (needs {SESSION_BYTES})")
