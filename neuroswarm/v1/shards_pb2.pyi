from neuroswarm.v1 import state_pb2 as _state_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeldRequest(_message.Message):
    __slots__ = ("corpus",)
    CORPUS_FIELD_NUMBER: _ClassVar[int]
    corpus: bytes
    def __init__(self, corpus: _Optional[bytes] = ...) -> None: ...

class HeldReply(_message.Message):
    __slots__ = ("is_known", "held")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    held: bytes
    def __init__(self, is_known: bool = ..., held: _Optional[bytes] = ...) -> None: ...

class BytesRequest(_message.Message):
    __slots__ = ("sha256", "offset", "length")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    offset: int
    length: int
    def __init__(self, sha256: _Optional[bytes] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class BytesChunk(_message.Message):
    __slots__ = ("data", "refusal")
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    refusal: _state_pb2.Refusal
    def __init__(self, data: _Optional[bytes] = ..., refusal: _Optional[_Union[_state_pb2.Refusal, str]] = ...) -> None: ...
