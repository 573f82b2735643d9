from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProbeRequest(_message.Message):
    __slots__ = ("answer_bytes", "padding")
    ANSWER_BYTES_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    answer_bytes: int
    padding: bytes
    def __init__(self, answer_bytes: _Optional[int] = ..., padding: _Optional[bytes] = ...) -> None: ...

class ProbePeer(_message.Message):
    __slots__ = ("host", "http_port", "grpc_port", "heartbeat_port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    http_port: int
    grpc_port: int
    heartbeat_port: int
    def __init__(self, host: _Optional[str] = ..., http_port: _Optional[int] = ..., grpc_port: _Optional[int] = ..., heartbeat_port: _Optional[int] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("time", "observed_host", "observed_port", "grpc_port", "heartbeat_port", "peers", "padding")
    TIME_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_HOST_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_PORT_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_PORT_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    time: float
    observed_host: str
    observed_port: int
    grpc_port: int
    heartbeat_port: int
    peers: _containers.RepeatedCompositeFieldContainer[ProbePeer]
    padding: bytes
    def __init__(self, time: _Optional[float] = ..., observed_host: _Optional[str] = ..., observed_port: _Optional[int] = ..., grpc_port: _Optional[int] = ..., heartbeat_port: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[ProbePeer, _Mapping]]] = ..., padding: _Optional[bytes] = ...) -> None: ...
