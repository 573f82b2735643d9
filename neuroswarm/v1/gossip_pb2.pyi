from neuroswarm.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PushRequest(_message.Message):
    __slots__ = ("messages", "inline", "proofs")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Relayed]
    inline: _containers.RepeatedCompositeFieldContainer[InlinePayload]
    proofs: _containers.RepeatedCompositeFieldContainer[EquivocationProof]
    def __init__(self, messages: _Optional[_Iterable[_Union[_envelope_pb2.Relayed, _Mapping]]] = ..., inline: _Optional[_Iterable[_Union[InlinePayload, _Mapping]]] = ..., proofs: _Optional[_Iterable[_Union[EquivocationProof, _Mapping]]] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InlinePayload(_message.Message):
    __slots__ = ("contribution", "data")
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    contribution: bytes
    data: bytes
    def __init__(self, contribution: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class EquivocationProof(_message.Message):
    __slots__ = ("first", "second")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    first: _envelope_pb2.Signed
    second: _envelope_pb2.Signed
    def __init__(self, first: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ..., second: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ...) -> None: ...

class HeadersRequest(_message.Message):
    __slots__ = ("contributions",)
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    contributions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, contributions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeadersReply(_message.Message):
    __slots__ = ("headers",)
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    def __init__(self, headers: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ...) -> None: ...

class PayloadRequest(_message.Message):
    __slots__ = ("contribution", "offset")
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    contribution: bytes
    offset: int
    def __init__(self, contribution: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class ResultRequest(_message.Message):
    __slots__ = ("round", "base_digest")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    round: int
    base_digest: bytes
    def __init__(self, round: _Optional[int] = ..., base_digest: _Optional[bytes] = ...) -> None: ...

class ResultReply(_message.Message):
    __slots__ = ("is_known", "headers", "confirms", "next_digest")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    headers: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    confirms: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    next_digest: bytes
    def __init__(self, is_known: bool = ..., headers: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., confirms: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., next_digest: _Optional[bytes] = ...) -> None: ...

class LineageRequest(_message.Message):
    __slots__ = ("first_round", "known_round")
    FIRST_ROUND_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ROUND_FIELD_NUMBER: _ClassVar[int]
    first_round: int
    known_round: int
    def __init__(self, first_round: _Optional[int] = ..., known_round: _Optional[int] = ...) -> None: ...

class LineageReply(_message.Message):
    __slots__ = ("rounds", "round", "digest", "known_digest")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    KNOWN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    rounds: _containers.RepeatedCompositeFieldContainer[LineageRound]
    round: int
    digest: bytes
    known_digest: bytes
    def __init__(self, rounds: _Optional[_Iterable[_Union[LineageRound, _Mapping]]] = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ..., known_digest: _Optional[bytes] = ...) -> None: ...

class LineageRound(_message.Message):
    __slots__ = ("round", "base_digest", "next_digest", "confirms")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIRMS_FIELD_NUMBER: _ClassVar[int]
    round: int
    base_digest: bytes
    next_digest: bytes
    confirms: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    def __init__(self, round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., next_digest: _Optional[bytes] = ..., confirms: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ...) -> None: ...
