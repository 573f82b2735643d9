"""Breaks protobuf messages by their structure, and bytes by their encoding; all from one seed.

Knows nothing of what the messages mean.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

_INTEGERS = {
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2, 255, 1024, 65535, 65536, 2**31, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (
        0, 1, 2, 2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
    ),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 99, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), -1, 0, 1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), -1, 0, 1, 2**63 - 1),
}  # fmt: skip
_NAN, _INFINITY = float("nan"), float("inf")
_REALS = (0.0, -0.0, -1.0, 5e-324, 1e-38, 3.4e38, -3.4e38, _NAN, _INFINITY, -_INFINITY)
_TEXTS = (
    "", "\0", ".", "..", "-", "%", "127.0.0.1\0", "::1", "::ffff:127.0.0.1", "fe80::1%eth0",
    "unix:/tmp/x", "dns:///x.invalid", "localhost", "LOCALHOST.", "x.invalid",
    "a" * 63 + ".invalid",
    "a" * 253, "a" * 254, "a" * 4000, "int4", "topk", "../../etc", "\u00e9.invalid", "\U0001f600",
    "{}", "1" * 300,
)  # fmt: skip
_LENGTHS = (0, 1, 19, 20, 21, 31, 33, 63, 64, 65, 1000)
_DEPTH = 200


class Mutator:
    """Mutations drawn from one generator: the same seed gives the same inputs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def message(self, message: M) -> M:
        """A copy with one to three fields broken, at any depth."""
        copy = type(message)()
        copy.CopyFrom(message)
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self._break(copy)
        return copy

    def encoding(self, data: bytes) -> bytes:
        """The bytes with their protobuf encoding broken."""
        return self.rng.choice(_ENCODINGS)(self, data)

    def flipped(self, data: bytes) -> bytes:
        """The bytes with one to eight bits turned over."""
        if not data:
            return b"\xff"
        broken = bytearray(data)
        for _ in range(self.rng.randint(1, 8)):
            broken[self.rng.randrange(len(broken))] ^= 1 << self.rng.randrange(8)
        return bytes(broken)

    def cut(self, data: bytes) -> bytes:
        """A beginning of the bytes."""
        return data[: self.rng.randrange(len(data) + 1)]

    def octets(self, like: bytes = b"") -> bytes:
        """A byte string: of another length, of the same with other content, or empty."""
        choice = self.rng.randrange(4)
        if choice == 0:
            return self.rng.randbytes(self.rng.choice(_LENGTHS))
        if choice == 1:
            return bytes(len(like))
        return self.flipped(like) if choice == 2 else self.rng.randbytes(len(like) or 32)

    def _break(self, message: Message) -> None:
        if not message.DESCRIPTOR.fields:
            return  # its encoding may be broken still
        field = self.rng.choice(message.DESCRIPTOR.fields)
        if field.is_repeated:
            self._break_list(message, field)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            choice = self.rng.randrange(4)
            if choice == 0:
                message.ClearField(field.name)
            elif choice == 1:
                getattr(message, field.name).SetInParent()
            else:
                self._break(getattr(message, field.name))
        elif self.rng.randrange(4) == 0:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, self._scalar(field, getattr(message, field.name)))

    def _break_list(self, message: Message, field: FieldDescriptor) -> None:
        values = getattr(message, field.name)
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        choice = self.rng.randrange(5)
        if not values:
            values.add() if is_message else values.append(self._scalar(field, b""))
        elif choice == 0:
            del values[self.rng.randrange(len(values)) :]
        elif choice == 1:  # doubles, out of order
            values.append(values[self.rng.randrange(len(values))])
        elif choice == 2 and len(values) < 2000:
            values.extend([values[0]] * self.rng.choice((2, 5, 17, 65, 257, 1025)))
        elif is_message:
            self._break(values[self.rng.randrange(len(values))])
        else:
            values[self.rng.randrange(len(values))] = self._scalar(field, values[0])

    def _scalar(self, field: FieldDescriptor, value: Any) -> Any:
        kind = field.cpp_type
        if kind in _INTEGERS:
            return self.rng.choice(_INTEGERS[kind])
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return self.rng.choice(_REALS)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return not value
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.rng.choice(_TEXTS)
        return self.octets(value)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def _unknown_field(m: Mutator, data: bytes) -> bytes:
    tag = m.rng.choice((15, 100, 2**29 - 1, 0, 19000)) << 3 | m.rng.randrange(8)
    return data + _varint(tag) + m.rng.randbytes(m.rng.choice((0, 1, 4, 8, 30)))


def _long_claim(m: Mutator, data: bytes) -> bytes:
    number = m.rng.randint(1, 22)
    size = m.rng.choice((2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1, len(data) + 1))
    return data + _varint(number << 3 | 2) + _varint(size) + data[:16]


def _nested(m: Mutator, data: bytes) -> bytes:
    number, inner = m.rng.randint(1, 5), b""
    for _ in range(_DEPTH):
        inner = bytes((number << 3 | 2,)) + _varint(len(inner)) + inner
    return data + inner


def _groups(m: Mutator, data: bytes) -> bytes:
    return data + bytes((m.rng.randint(1, 15) << 3 | m.rng.choice((3, 4)),)) * _DEPTH


def _endless_varint(m: Mutator, data: bytes) -> bytes:
    return data + bytes((m.rng.randint(1, 15) << 3,)) + b"\xff" * m.rng.choice((9, 10, 11, 50))


def _other_type(m: Mutator, data: bytes) -> bytes:
    """The first field with another wire type."""
    return data and bytes((data[0] & 0xF8 | m.rng.randrange(8),)) + data[1:]


def _spliced(m: Mutator, data: bytes) -> bytes:
    at, from_ = m.rng.randrange(len(data) + 1), m.rng.randrange(len(data) + 1)
    return data[:at] + data[from_:]


_ENCODINGS: tuple[Callable[[Mutator, bytes], bytes], ...] = (
    Mutator.flipped,
    Mutator.cut,
    _unknown_field,
    _long_claim,
    _nested,
    _groups,
    _endless_varint,
    _other_type,
    _spliced,
    lambda m, data: data + m.flipped(data),  # every field twice
    lambda m, data: m.rng.randbytes(len(data)),
)
