from neuroswarm.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DhtScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DHT_SCOPE_UNSPECIFIED: _ClassVar[DhtScope]
    DHT_SCOPE_SWARM: _ClassVar[DhtScope]
    DHT_SCOPE_FRAGMENT: _ClassVar[DhtScope]
    DHT_SCOPE_NODE: _ClassVar[DhtScope]

class DhtVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DHT_VERDICT_UNSPECIFIED: _ClassVar[DhtVerdict]
    DHT_VERDICT_STORED: _ClassVar[DhtVerdict]
    DHT_VERDICT_NOT_NEWER: _ClassVar[DhtVerdict]
    DHT_VERDICT_BAD_TIME: _ClassVar[DhtVerdict]
    DHT_VERDICT_NO_ROOM: _ClassVar[DhtVerdict]
    DHT_VERDICT_BAD_PERMIT: _ClassVar[DhtVerdict]
    DHT_VERDICT_REFUSED: _ClassVar[DhtVerdict]
DHT_SCOPE_UNSPECIFIED: DhtScope
DHT_SCOPE_SWARM: DhtScope
DHT_SCOPE_FRAGMENT: DhtScope
DHT_SCOPE_NODE: DhtScope
DHT_VERDICT_UNSPECIFIED: DhtVerdict
DHT_VERDICT_STORED: DhtVerdict
DHT_VERDICT_NOT_NEWER: DhtVerdict
DHT_VERDICT_BAD_TIME: DhtVerdict
DHT_VERDICT_NO_ROOM: DhtVerdict
DHT_VERDICT_BAD_PERMIT: DhtVerdict
DHT_VERDICT_REFUSED: DhtVerdict

class DhtContact(_message.Message):
    __slots__ = ("address", "name", "port", "sequence")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    address: bytes
    name: str
    port: int
    sequence: int
    def __init__(self, address: _Optional[bytes] = ..., name: _Optional[str] = ..., port: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class DhtRelay(_message.Message):
    __slots__ = ("node_id", "host", "grpc_port")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    host: str
    grpc_port: int
    def __init__(self, node_id: _Optional[bytes] = ..., host: _Optional[str] = ..., grpc_port: _Optional[int] = ...) -> None: ...

class DhtRecord(_message.Message):
    __slots__ = ("swarm_id", "scope", "fragment", "sequence", "expires_at", "is_withdrawn", "hosts", "grpc_port", "heartbeat_port", "dht_port", "http_port", "protocol", "is_unreachable", "relays", "is_training", "available_memory_mb", "tokens_per_s", "first_fragment", "num_fragments", "round", "digest")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    IS_WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_PORT_FIELD_NUMBER: _ClassVar[int]
    DHT_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    IS_UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    IS_TRAINING_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    NUM_FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    scope: DhtScope
    fragment: int
    sequence: int
    expires_at: float
    is_withdrawn: bool
    hosts: _containers.RepeatedScalarFieldContainer[str]
    grpc_port: int
    heartbeat_port: int
    dht_port: int
    http_port: int
    protocol: int
    is_unreachable: bool
    relays: _containers.RepeatedCompositeFieldContainer[DhtRelay]
    is_training: bool
    available_memory_mb: int
    tokens_per_s: float
    first_fragment: int
    num_fragments: int
    round: int
    digest: bytes
    def __init__(self, swarm_id: _Optional[bytes] = ..., scope: _Optional[_Union[DhtScope, str]] = ..., fragment: _Optional[int] = ..., sequence: _Optional[int] = ..., expires_at: _Optional[float] = ..., is_withdrawn: bool = ..., hosts: _Optional[_Iterable[str]] = ..., grpc_port: _Optional[int] = ..., heartbeat_port: _Optional[int] = ..., dht_port: _Optional[int] = ..., http_port: _Optional[int] = ..., protocol: _Optional[int] = ..., is_unreachable: bool = ..., relays: _Optional[_Iterable[_Union[DhtRelay, _Mapping]]] = ..., is_training: bool = ..., available_memory_mb: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., first_fragment: _Optional[int] = ..., num_fragments: _Optional[int] = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class DhtPing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DhtFind(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    def __init__(self, key: _Optional[bytes] = ...) -> None: ...

class DhtFetch(_message.Message):
    __slots__ = ("key", "after", "known")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    after: bytes
    known: bytes
    def __init__(self, key: _Optional[bytes] = ..., after: _Optional[bytes] = ..., known: _Optional[bytes] = ...) -> None: ...

class DhtStore(_message.Message):
    __slots__ = ("record", "permit")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    record: _envelope_pb2.Signed
    permit: bytes
    def __init__(self, record: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ..., permit: _Optional[bytes] = ...) -> None: ...

class DhtRequest(_message.Message):
    __slots__ = ("nonce", "receiver", "contact", "ping", "find", "fetch", "store")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    FIND_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    receiver: bytes
    contact: _envelope_pb2.Signed
    ping: DhtPing
    find: DhtFind
    fetch: DhtFetch
    store: DhtStore
    def __init__(self, nonce: _Optional[bytes] = ..., receiver: _Optional[bytes] = ..., contact: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ..., ping: _Optional[_Union[DhtPing, _Mapping]] = ..., find: _Optional[_Union[DhtFind, _Mapping]] = ..., fetch: _Optional[_Union[DhtFetch, _Mapping]] = ..., store: _Optional[_Union[DhtStore, _Mapping]] = ...) -> None: ...

class DhtAnswer(_message.Message):
    __slots__ = ("nonce", "time", "contact", "contacts", "num_records", "permit", "records", "num_left", "verdict")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    NUM_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_LEFT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    time: float
    contact: _envelope_pb2.Signed
    contacts: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    num_records: int
    permit: bytes
    records: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    num_left: int
    verdict: DhtVerdict
    def __init__(self, nonce: _Optional[bytes] = ..., time: _Optional[float] = ..., contact: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ..., contacts: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., num_records: _Optional[int] = ..., permit: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., num_left: _Optional[int] = ..., verdict: _Optional[_Union[DhtVerdict, str]] = ...) -> None: ...
