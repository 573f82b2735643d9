from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FragmentPayload(_message.Message):
    __slots__ = ("fragment", "payload_hash", "payload_bytes")
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_HASH_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    fragment: int
    payload_hash: bytes
    payload_bytes: int
    def __init__(self, fragment: _Optional[int] = ..., payload_hash: _Optional[bytes] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest", "architecture", "codec", "inner_steps", "tokens", "loss", "fragments")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    INNER_STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    architecture: bytes
    codec: str
    inner_steps: int
    tokens: int
    loss: float
    fragments: _containers.RepeatedCompositeFieldContainer[FragmentPayload]
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., architecture: _Optional[bytes] = ..., codec: _Optional[str] = ..., inner_steps: _Optional[int] = ..., tokens: _Optional[int] = ..., loss: _Optional[float] = ..., fragments: _Optional[_Iterable[_Union[FragmentPayload, _Mapping]]] = ...) -> None: ...

class Skip(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest", "inner_steps")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INNER_STEPS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., inner_steps: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest", "inner_steps")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INNER_STEPS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., inner_steps: _Optional[int] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ...) -> None: ...

class Amendment(_message.Message):
    __slots__ = ("swarm_id", "rules")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    rules: bytes
    def __init__(self, swarm_id: _Optional[bytes] = ..., rules: _Optional[bytes] = ...) -> None: ...

class Ballot(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest", "contributions")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., contributions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("swarm_id", "round", "base_digest", "contributions")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, swarm_id: _Optional[bytes] = ..., round: _Optional[int] = ..., base_digest: _Optional[bytes] = ..., contributions: _Optional[_Iterable[bytes]] = ...) -> None: ...
