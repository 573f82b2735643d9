from neuroswarm.v1 import envelope_pb2 as _envelope_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reachability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REACHABILITY_UNSPECIFIED: _ClassVar[Reachability]
    REACHABILITY_OPEN: _ClassVar[Reachability]
    REACHABILITY_CLOSED: _ClassVar[Reachability]

class Hears(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEARS_UNSPECIFIED: _ClassVar[Hears]
    HEARS_YES: _ClassVar[Hears]
    HEARS_NO: _ClassVar[Hears]
REACHABILITY_UNSPECIFIED: Reachability
REACHABILITY_OPEN: Reachability
REACHABILITY_CLOSED: Reachability
HEARS_UNSPECIFIED: Hears
HEARS_YES: Hears
HEARS_NO: Hears

class Heartbeat(_message.Message):
    __slots__ = ("swarm_id", "sequence", "time", "host", "grpc_port", "heartbeat_port", "http_port", "protocol", "available_memory_mb", "queue_depth", "first_fragment", "num_fragments", "uses_accelerator", "network_saturation", "is_training", "accepts_inference", "accepts_activations", "round", "digest", "tokens_per_s", "inner_steps", "is_leaving", "instance", "twin", "is_settled", "relays", "reach", "other_hosts", "dht_port", "evaluated", "held_out_loss")
    SWARM_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    NUM_FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    USES_ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    NETWORK_SATURATION_FIELD_NUMBER: _ClassVar[int]
    IS_TRAINING_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_INFERENCE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    INNER_STEPS_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    TWIN_FIELD_NUMBER: _ClassVar[int]
    IS_SETTLED_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    OTHER_HOSTS_FIELD_NUMBER: _ClassVar[int]
    DHT_PORT_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_LOSS_FIELD_NUMBER: _ClassVar[int]
    swarm_id: bytes
    sequence: int
    time: float
    host: str
    grpc_port: int
    heartbeat_port: int
    http_port: int
    protocol: int
    available_memory_mb: int
    queue_depth: int
    first_fragment: int
    num_fragments: int
    uses_accelerator: bool
    network_saturation: float
    is_training: bool
    accepts_inference: bool
    accepts_activations: bool
    round: int
    digest: bytes
    tokens_per_s: float
    inner_steps: int
    is_leaving: bool
    instance: bytes
    twin: bytes
    is_settled: bool
    relays: _containers.RepeatedScalarFieldContainer[bytes]
    reach: Reachability
    other_hosts: _containers.RepeatedScalarFieldContainer[str]
    dht_port: int
    evaluated: bytes
    held_out_loss: float
    def __init__(self, swarm_id: _Optional[bytes] = ..., sequence: _Optional[int] = ..., time: _Optional[float] = ..., host: _Optional[str] = ..., grpc_port: _Optional[int] = ..., heartbeat_port: _Optional[int] = ..., http_port: _Optional[int] = ..., protocol: _Optional[int] = ..., available_memory_mb: _Optional[int] = ..., queue_depth: _Optional[int] = ..., first_fragment: _Optional[int] = ..., num_fragments: _Optional[int] = ..., uses_accelerator: bool = ..., network_saturation: _Optional[float] = ..., is_training: bool = ..., accepts_inference: bool = ..., accepts_activations: bool = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ..., tokens_per_s: _Optional[float] = ..., inner_steps: _Optional[int] = ..., is_leaving: bool = ..., instance: _Optional[bytes] = ..., twin: _Optional[bytes] = ..., is_settled: bool = ..., relays: _Optional[_Iterable[bytes]] = ..., reach: _Optional[_Union[Reachability, str]] = ..., other_hosts: _Optional[_Iterable[str]] = ..., dht_port: _Optional[int] = ..., evaluated: _Optional[bytes] = ..., held_out_loss: _Optional[float] = ...) -> None: ...

class HeartbeatDatagram(_message.Message):
    __slots__ = ("own", "heard", "hears")
    OWN_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    HEARS_FIELD_NUMBER: _ClassVar[int]
    own: _envelope_pb2.Signed
    heard: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    hears: Hears
    def __init__(self, own: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ..., heard: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., hears: _Optional[_Union[Hears, str]] = ...) -> None: ...

class TrackerRequest(_message.Message):
    __slots__ = ("own",)
    OWN_FIELD_NUMBER: _ClassVar[int]
    own: _envelope_pb2.Signed
    def __init__(self, own: _Optional[_Union[_envelope_pb2.Signed, _Mapping]] = ...) -> None: ...

class TrackerReply(_message.Message):
    __slots__ = ("peers", "observed_host")
    PEERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_HOST_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[_envelope_pb2.Signed]
    observed_host: str
    def __init__(self, peers: _Optional[_Iterable[_Union[_envelope_pb2.Signed, _Mapping]]] = ..., observed_host: _Optional[str] = ...) -> None: ...
