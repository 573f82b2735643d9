from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DialRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DialReply(_message.Message):
    __slots__ = ("reached_host", "reason")
    REACHED_HOST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reached_host: str
    reason: str
    def __init__(self, reached_host: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
