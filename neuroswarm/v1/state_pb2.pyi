from neuroswarm.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    __slots__ = ("name", "num_params", "leaf")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARAMS_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_params: int
    leaf: bytes
    def __init__(self, name: _Optional[str] = ..., num_params: _Optional[int] = ..., leaf: _Optional[bytes] = ...) -> None: ...

class AppliedEntry(_message.Message):
    __slots__ = ("node_id", "round", "contribution")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    round: int
    contribution: bytes
    def __init__(self, node_id: _Optional[bytes] = ..., round: _Optional[int] = ..., contribution: _Optional[bytes] = ...) -> None: ...

class FragmentRequest(_message.Message):
    __slots__ = ("digest", "fragment", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    fragment: int
    offset: int
    def __init__(self, digest: _Optional[bytes] = ..., fragment: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
