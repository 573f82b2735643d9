from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("session", "takes_pipes")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TAKES_PIPES_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    takes_pipes: bool
    def __init__(self, session: _Optional[bytes] = ..., takes_pipes: bool = ...) -> None: ...

class RelayFrames(_message.Message):
    __slots__ = ("session", "frames")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    frames: _containers.RepeatedCompositeFieldContainer[RelayFrame]
    def __init__(self, session: _Optional[bytes] = ..., frames: _Optional[_Iterable[_Union[RelayFrame, _Mapping]]] = ...) -> None: ...

class RelayFrame(_message.Message):
    __slots__ = ("pipe", "open", "credit", "data", "is_end")
    PIPE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_END_FIELD_NUMBER: _ClassVar[int]
    pipe: int
    open: bytes
    credit: int
    data: bytes
    is_end: bool
    def __init__(self, pipe: _Optional[int] = ..., open: _Optional[bytes] = ..., credit: _Optional[int] = ..., data: _Optional[bytes] = ..., is_end: bool = ...) -> None: ...

class RelayReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
