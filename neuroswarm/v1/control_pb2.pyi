from neuroswarm.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RulesRequest(_message.Message):
    __slots__ = ("amendment",)
    AMENDMENT_FIELD_NUMBER: _ClassVar[int]
    amendment: _envelope_pb2.Signed
    def __init__(self, amendment: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ...) -> None: ...

class RulesReply(_message.Message):
    __slots__ = ("swarm_id", "rules", "round", "is_taken", "reason")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    rules: bytes
    round: int
    is_taken: bool
    reason: str
    def __init__(self, swarm_id: _Optional[bytes] = ..., rules: _Optional[bytes] = ..., round: _Optional[int] = ..., is_taken: bool = ..., reason: _Optional[str] = ...) -> None: ...
