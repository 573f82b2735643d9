from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_HEARTBEAT: _ClassVar[Kind]
    KIND_CONTRIBUTION: _ClassVar[Kind]
    KIND_SKIP: _ClassVar[Kind]
    KIND_READY: _ClassVar[Kind]
    KIND_BALLOT: _ClassVar[Kind]
    KIND_CONFIRM: _ClassVar[Kind]
    KIND_SEAL: _ClassVar[Kind]
    KIND_AMENDMENT: _ClassVar[Kind]
    KIND_DHT_REQUEST: _ClassVar[Kind]
    KIND_DHT_ANSWER: _ClassVar[Kind]
    KIND_DHT_CONTACT: _ClassVar[Kind]
    KIND_DHT_RECORD: _ClassVar[Kind]
KIND_UNSPECIFIED: Kind
KIND_HEARTBEAT: Kind
KIND_CONTRIBUTION: Kind
KIND_SKIP: Kind
KIND_READY: Kind
KIND_BALLOT: Kind
KIND_CONFIRM: Kind
KIND_SEAL: Kind
KIND_AMENDMENT: Kind
KIND_DHT_REQUEST: Kind
KIND_DHT_ANSWER: Kind
KIND_DHT_CONTACT: Kind
KIND_DHT_RECORD: Kind

class Signed(_message.Message):
    __slots__ = ("kind", "body", "public_key", "signature")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    body: bytes
    public_key: bytes
    signature: bytes
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., body: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Relayed(_message.Message):
    __slots__ = ("message", "hops_left")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HOPS_LEFT_FIELD_NUMBER: _ClassVar[int]
    message: Signed
    hops_left: int
    def __init__(self, message: _Optional[_Union[Signed, _Mapping]] = ..., hops_left: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...
