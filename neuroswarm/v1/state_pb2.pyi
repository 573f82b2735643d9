from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Refusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_NONE: _ClassVar[Refusal]
    REFUSAL_GONE: _ClassVar[Refusal]
    REFUSAL_BUSY: _ClassVar[Refusal]
REFUSAL_NONE: Refusal
REFUSAL_GONE: Refusal
REFUSAL_BUSY: Refusal

class ManifestRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class StateManifest(_message.Message):
    __slots__ = ("is_known", "round", "digest", "rules", "architecture", "fragments", "applied")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    round: int
    digest: bytes
    rules: bytes
    architecture: bytes
    fragments: _containers.RepeatedCompositeFieldContainer[FragmentManifest]
    applied: _containers.RepeatedCompositeFieldContainer[AppliedEntry]
    def __init__(self, is_known: bool = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ..., rules: _Optional[bytes] = ..., architecture: _Optional[bytes] = ..., fragments: _Optional[_Iterable[_Union[FragmentManifest, _Mapping]]] = ..., applied: _Optional[_Iterable[_Union[AppliedEntry, _Mapping]]] = ...) -> None: ...

class FragmentManifest(_message.Message):
    __slots__ = ("name", "num_params", "pieces")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARAMS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_params: int
    pieces: bytes
    def __init__(self, name: _Optional[str] = ..., num_params: _Optional[int] = ..., pieces: _Optional[bytes] = ...) -> None: ...

class AppliedEntry(_message.Message):
    __slots__ = ("node_id", "round", "contribution")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    round: int
    contribution: bytes
    def __init__(self, node_id: _Optional[bytes] = ..., round: _Optional[int] = ..., contribution: _Optional[bytes] = ...) -> None: ...

class PieceRequest(_message.Message):
    __slots__ = ("digest", "piece", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    piece: int
    offset: int
    def __init__(self, digest: _Optional[bytes] = ..., piece: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class PieceChunk(_message.Message):
    __slots__ = ("data", "refusal")
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    refusal: Refusal
    def __init__(self, data: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, str]] = ...) -> None: ...
