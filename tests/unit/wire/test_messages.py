"""Bodies of statements: round trips, every limit, and no way to hurt a decoder."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import MessageTooLarge, PeerError, SchemaMismatch
from neuroswarm.hardware.device_class import DeviceClass
from neuroswarm.v1 import heartbeat_pb2, rounds_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire import heartbeats, limits, messages
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.messages import Ballot, Confirm, Contribution, FragmentPayload, Ready, Skip

Body = Contribution | Skip | Ready | Ballot | Confirm | Heartbeat

HASH = bytes(range(32))
CONTRIBUTION = Contribution(
    swarm_id=HASH,
    round=41,
    base_digest=bytes(32),
    architecture=bytes([1]) * 32,
    codec="int4",
    inner_steps=500,
    tokens=2**40,
    loss=1.5,
    fragments=(FragmentPayload(0, bytes([2]) * 32, 100), FragmentPayload(3, bytes(32), 2**33)),
)
HEARTBEAT = Heartbeat(
    swarm_id=HASH,
    sequence=7,
    time=1.7e9,
    host="10.0.0.1",
    grpc_port=8101,
    heartbeat_port=9999,
    http_port=7101,
    protocol=1,
    is_training=True,
    available_memory_mb=4096,
    queue_depth=3,
    first_fragment=1,
    num_fragments=2,
    uses_accelerator=True,
    network_saturation=0.25,
    accepts_inference=True,
    accepts_activations=True,
    round=41,
    digest=bytes(32),
    tokens_per_s=1024.0,
    inner_steps=499,
    is_leaving=True,
    instance=b"instance",
    twin=b"thetwin!",
    is_settled=True,
    evaluated=b"thestate",
    held_out_loss=2.5,
)
BALLOT = Ballot(HASH, 41, bytes(32), (bytes([1]) * 32, bytes([2]) * 32))
CONFIRM = Confirm(HASH, 41, bytes(32), (bytes([1]) * 32, bytes([2]) * 32))
SKIP = Skip(HASH, 41, bytes(32), 12)
READY = Ready(HASH, 41, bytes(32), 500)

DECODERS: list[tuple[Body, Callable[[bytes], Body]]] = [
    (CONTRIBUTION, messages.decode_contribution),
    (SKIP, messages.decode_skip),
    (READY, messages.decode_ready),
    (BALLOT, messages.decode_ballot),
    (CONFIRM, messages.decode_confirm),
    (HEARTBEAT, heartbeats.decode_heartbeat),
]
IDS = [type(body).__name__ for body, _ in DECODERS]
decoders = pytest.mark.parametrize(("body", "decode"), DECODERS, ids=IDS)
round_decoders = pytest.mark.parametrize(("body", "decode"), DECODERS[:-1], ids=IDS[:-1])

hashes = st.binary(min_size=32, max_size=32)
counts = st.integers(0, limits.MAX_COUNT)
id_sets = st.lists(hashes, unique=True, max_size=20).map(lambda ids: tuple(sorted(ids)))
floats32 = st.floats(allow_nan=False, allow_infinity=False, width=32)


def change(body: Body, **fields: object) -> bytes:
    """The encoded body with some fields replaced."""
    return dataclasses.replace(body, **fields).encode()  # type: ignore[arg-type]


@decoders
def test_body_survives_the_wire(body: Body, decode: Callable[[bytes], Body]):
    assert decode(body.encode()) == body


@pytest.mark.parametrize("device_class", [None, *DeviceClass])
def test_a_heartbeat_tells_of_its_machine(device_class: DeviceClass | None):
    body = change(HEARTBEAT, device_class=device_class, start_step_s=1.5)
    heartbeat = heartbeats.decode_heartbeat(body)
    assert (heartbeat.device_class, heartbeat.start_step_s) == (device_class, 1.5)


def test_a_machine_of_a_later_version_is_of_no_class():
    later = heartbeat_pb2.Heartbeat.FromString(HEARTBEAT.encode())
    later.device_class = 77  # type: ignore[assignment]
    assert heartbeats.decode_heartbeat(later.SerializeToString()).device_class is None


@decoders
def test_fields_of_a_later_version_are_passed_over(body: Body, decode: Callable[[bytes], Body]):
    field_1000 = bytes.fromhex("c23e03") + b"new"
    assert decode(body.encode() + field_1000) == body


@decoders
def test_encoding_is_the_same_every_time(body: Body, decode: Callable[[bytes], Body]):
    assert decode(body.encode()).encode() == body.encode()


@given(
    st.builds(
        Contribution,
        hashes,
        counts,
        hashes,
        hashes,
        st.text(min_size=1, max_size=20),
        counts,
        counts,
        floats32,
        st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=10).map(
            lambda parts: tuple(FragmentPayload(i, bytes(32), i) for i in sorted(parts))
        ),
    )
)
def test_any_legal_contribution_survives_the_wire(body: Contribution):
    assert messages.decode_contribution(body.encode()) == body
    assert body.payload_bytes == sum(part.payload_bytes for part in body.fragments)


@given(hashes, counts, hashes, counts, id_sets)
def test_any_legal_round_statement_survives_the_wire(
    swarm: bytes, round_: int, base: bytes, steps: int, ids: tuple[bytes, ...]
):
    skip, ready = Skip(swarm, round_, base, steps), Ready(swarm, round_, base, steps)
    ballot, confirm = Ballot(swarm, round_, base, ids), Confirm(swarm, round_, base, ids)
    assert messages.decode_skip(skip.encode()) == skip
    assert messages.decode_ready(ready.encode()) == ready
    assert messages.decode_ballot(ballot.encode()) == ballot
    assert messages.decode_confirm(confirm.encode()) == confirm


@decoders
@given(data=st.binary(max_size=400))
def test_random_bytes_are_decoded_or_refused_as_the_peers_fault(
    body: Body, decode: Callable[[bytes], Body], data: bytes
):
    try:
        found = decode(data)
    except PeerError:
        return
    assert decode(found.encode()) == found, body


@decoders
@given(data=st.data())
def test_damaged_bodies_are_decoded_or_refused_as_the_peers_fault(
    body: Body, decode: Callable[[bytes], Body], data: st.DataObject
):
    """Random bytes rarely get past the parser; a few changed bytes of a real body do."""
    damaged = bytearray(body.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        found = decode(bytes(damaged))
    except PeerError:
        return
    assert decode(found.encode()) == found


@round_decoders
@pytest.mark.parametrize("field", ["swarm_id", "base_digest"])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_hashes_of_another_length_are_refused(
    body: Body, decode: Callable[[bytes], Body], field: str, size: int
):
    with pytest.raises(SchemaMismatch, match=rf"{size} bytes \(needs 32\)"):
        decode(change(body, **{field: bytes(size)}))


@round_decoders
def test_largest_round_passes_and_one_more_does_not(body: Body, decode: Callable[[bytes], Body]):
    assert decode(change(body, round=limits.MAX_COUNT)).round == limits.MAX_COUNT
    with pytest.raises(MessageTooLarge, match="round out of range"):
        decode(change(body, round=limits.MAX_COUNT + 1))


@pytest.mark.parametrize(
    ("body", "decode", "field", "limit"),
    [
        (CONTRIBUTION, messages.decode_contribution, "inner_steps", limits.MAX_COUNT),
        (CONTRIBUTION, messages.decode_contribution, "tokens", limits.MAX_COUNT),
        (SKIP, messages.decode_skip, "inner_steps", limits.MAX_COUNT),
        (READY, messages.decode_ready, "inner_steps", limits.MAX_COUNT),
        (HEARTBEAT, heartbeats.decode_heartbeat, "sequence", limits.MAX_COUNT),
        (HEARTBEAT, heartbeats.decode_heartbeat, "round", limits.MAX_COUNT),
        (HEARTBEAT, heartbeats.decode_heartbeat, "inner_steps", limits.MAX_COUNT),
        (HEARTBEAT, heartbeats.decode_heartbeat, "available_memory_mb", limits.MAX_COUNT),
        (HEARTBEAT, heartbeats.decode_heartbeat, "grpc_port", 65535),
        (HEARTBEAT, heartbeats.decode_heartbeat, "heartbeat_port", 65535),
        (HEARTBEAT, heartbeats.decode_heartbeat, "http_port", 65535),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_largest_count_passes_and_one_more_does_not(
    body: Body, decode: Callable[[bytes], Body], field: str, limit: int
):
    assert getattr(decode(change(body, **{field: limit})), field) == limit
    with pytest.raises(MessageTooLarge, match=f"limit {limit}"):
        decode(change(body, **{field: limit + 1}))


@pytest.mark.parametrize(
    ("body", "decode"), [(BALLOT, messages.decode_ballot), (CONFIRM, messages.decode_confirm)]
)
def test_set_of_contributions_is_bounded_and_strictly_ascending(
    body: Ballot | Confirm, decode: Callable[[bytes], Ballot | Confirm]
):
    ids = tuple(i.to_bytes(32, "big") for i in range(limits.MAX_SET + 1))
    assert decode(change(body, contributions=ids[1:])).contributions == ids[1:]
    assert decode(change(body, contributions=())).contributions == ()
    assert decode(change(body, contributions=ids[:1])).contributions == ids[:1]
    with pytest.raises(MessageTooLarge, match=f"limit {limits.MAX_SET}"):
        decode(change(body, contributions=ids))
    with pytest.raises(SchemaMismatch, match="ascending"):
        decode(change(body, contributions=(ids[2], ids[1])))
    with pytest.raises(SchemaMismatch, match="ascending"):
        decode(change(body, contributions=(ids[1], ids[1])))
    with pytest.raises(SchemaMismatch, match="contribution id: 31 bytes"):
        decode(change(body, contributions=(ids[1], bytes(31))))


def test_set_hash_does_not_depend_on_order_but_on_every_id():
    ids = CONFIRM.contributions
    assert CONFIRM.set_hash == messages.set_hash(ids) == messages.set_hash(reversed(ids))
    assert len({messages.set_hash(ids[:n]) for n in range(3)}) == 3


def test_fragments_of_a_contribution_are_bounded_and_ascending():
    parts = tuple(FragmentPayload(i, HASH, 1) for i in range(limits.MAX_FRAGMENTS + 1))
    decode = messages.decode_contribution
    assert decode(change(CONTRIBUTION, fragments=parts[1:])).fragments == parts[1:]
    with pytest.raises(MessageTooLarge, match=f"limit {limits.MAX_FRAGMENTS}"):
        decode(change(CONTRIBUTION, fragments=parts))
    with pytest.raises(SchemaMismatch, match="out of order"):
        decode(change(CONTRIBUTION, fragments=(parts[1], parts[0])))
    with pytest.raises(SchemaMismatch, match="out of order"):
        decode(change(CONTRIBUTION, fragments=(parts[1], parts[1])))


def test_payload_hash_and_size_of_a_fragment_are_bounded():
    limit = 4 * limits.MAX_FRAGMENT_PARAMS
    decode = messages.decode_contribution
    largest = (FragmentPayload(0, HASH, limit),)
    assert decode(change(CONTRIBUTION, fragments=largest)).fragments == largest
    with pytest.raises(MessageTooLarge, match="payload bytes"):
        decode(change(CONTRIBUTION, fragments=(FragmentPayload(0, HASH, limit + 1),)))
    with pytest.raises(SchemaMismatch, match="payload hash"):
        decode(change(CONTRIBUTION, fragments=(FragmentPayload(0, bytes(20), 1),)))


@pytest.mark.parametrize(
    ("body", "decode", "field", "limit"),
    [
        (CONTRIBUTION, messages.decode_contribution, "codec", limits.MAX_NAME_CHARS),
        (HEARTBEAT, heartbeats.decode_heartbeat, "host", limits.MAX_HOST_CHARS),
    ],
    ids=["codec", "host"],
)
def test_texts_are_neither_empty_nor_too_long(
    body: Body, decode: Callable[[bytes], Body], field: str, limit: int
):
    longest = ("x" * 63 + ".") * (limit // 64) + "x" * (limit % 64)
    assert getattr(decode(change(body, **{field: longest})), field) == longest
    for text in ("", "x" * (limit + 1)):
        with pytest.raises(SchemaMismatch, match=rf"{len(text)} characters \(1 to {limit}\)"):
            decode(change(body, **{field: text}))


@pytest.mark.parametrize("host", ["fe80::1%a\0b", "unix:/run/docker.sock", "a..b"])
def test_host_that_would_mean_something_else_to_a_socket_is_refused(host: str):
    with pytest.raises(SchemaMismatch, match="not a host"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, host=host))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize(
    ("body", "decode", "field"),
    [
        (CONTRIBUTION, messages.decode_contribution, "loss"),
        (HEARTBEAT, heartbeats.decode_heartbeat, "network_saturation"),
        (HEARTBEAT, heartbeats.decode_heartbeat, "tokens_per_s"),
    ],
    ids=["loss", "network_saturation", "tokens_per_s"],
)
def test_numbers_are_finite(body: Body, decode: Callable[[bytes], Body], field: str, value: float):
    with pytest.raises(SchemaMismatch, match="not finite"):
        decode(change(body, **{field: value}))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e308, -1.0], ids=str)
def test_time_is_one_that_a_clock_may_tell(value: float):
    with pytest.raises(SchemaMismatch, match="time"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, time=value))


def test_architecture_hash_of_another_length_is_refused():
    with pytest.raises(SchemaMismatch, match="architecture: 20 bytes"):
        messages.decode_contribution(change(CONTRIBUTION, architecture=bytes(20)))


def test_heartbeat_of_a_bare_tracker_has_no_swarm_and_no_digest():
    body = dataclasses.replace(HEARTBEAT, swarm_id=b"", digest=b"", is_training=False)
    assert heartbeats.decode_heartbeat(body.encode()) == body


@pytest.mark.parametrize("field", ["swarm_id", "digest"])
def test_heartbeat_with_half_a_hash_is_refused(field: str):
    with pytest.raises(SchemaMismatch, match=r"16 bytes \(needs 32\)"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, **{field: bytes(16)}))


@pytest.mark.parametrize("loss", [-0.001, -0.5, 1000.1, math.nan, math.inf, -math.inf], ids=str)
def test_held_out_loss_is_in_its_range(loss: float):
    for legal in (0.0, limits.MAX_LOSS_NATS):
        body = dataclasses.replace(HEARTBEAT, held_out_loss=legal)
        assert heartbeats.decode_heartbeat(body.encode()) == body
    with pytest.raises(SchemaMismatch, match="held-out loss"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, held_out_loss=loss))


@pytest.mark.parametrize("size", [1, 7, 9, 32])
def test_name_of_the_evaluated_state_has_its_length_or_none(size: int):
    body = dataclasses.replace(HEARTBEAT, evaluated=b"", held_out_loss=0.0)
    assert heartbeats.decode_heartbeat(body.encode()) == body
    with pytest.raises(SchemaMismatch, match=f"evaluated: {size} bytes"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, evaluated=bytes(size)))


def test_hosted_fragments_end_within_the_architecture():
    last = limits.MAX_FRAGMENTS - 1
    body = dataclasses.replace(HEARTBEAT, first_fragment=last, num_fragments=1)
    assert heartbeats.decode_heartbeat(body.encode()) == body
    with pytest.raises(MessageTooLarge, match="hosted fragments"):
        heartbeats.decode_heartbeat(change(HEARTBEAT, first_fragment=last, num_fragments=2))


def test_heartbeat_tells_where_the_node_is_reached():
    assert HEARTBEAT.grpc_endpoint == Endpoint("10.0.0.1", 8101)
    assert HEARTBEAT.heartbeat_endpoint == Endpoint("10.0.0.1", 9999)


def test_largest_usual_heartbeat_leaves_room_for_others_in_a_datagram():
    """Two signed heartbeats with long IPv6 hosts fit into one datagram; three with short."""
    size = len(dataclasses.replace(HEARTBEAT, host="f" * 39).encode()) + 32 + 64 + 16
    assert 2 * size <= limits.MAX_DATAGRAM_BYTES


@pytest.mark.parametrize(
    ("message", "body", "golden"),
    [
        (rounds_pb2.Skip, SKIP, "0a20" + HASH.hex() + "1029" + "1a20" + "00" * 32 + "200c"),
        (rounds_pb2.Ready, READY, "0a20" + HASH.hex() + "1029" + "1a20" + "00" * 32 + "20f403"),
        (
            rounds_pb2.Ballot,
            BALLOT,
            "0a20"
            + HASH.hex()
            + "1029"
            + "1a20"
            + "00" * 32
            + "2220"
            + "01" * 32
            + "2220"
            + "02" * 32,
        ),
        (
            rounds_pb2.Confirm,
            CONFIRM,
            "0a20"
            + HASH.hex()
            + "1029"
            + "1a20"
            + "00" * 32
            + "2220"
            + "01" * 32
            + "2220"
            + "02" * 32,
        ),
        (
            rounds_pb2.Contribution,
            CONTRIBUTION,
            "0a20"
            + HASH.hex()
            + "1029"
            + "1a20"
            + "00" * 32
            + "2220"
            + "01" * 32
            + "2a04"
            + b"int4".hex()
            + "30f403"
            + "38808080808020"
            + "45"
            + struct.pack("<f", 1.5).hex()
            + "4a24"
            + "1220"
            + "02" * 32
            + "1864"
            + "4a2a"
            + "0803"
            + "1220"
            + "00" * 32
            + "188080808020",
        ),
    ],
    ids=["skip", "ready", "ballot", "confirm", "contribution"],
)
def test_bytes_on_the_wire_never_change(message: type[Message], body: Body, golden: str):
    assert body.encode().hex() == golden
    assert (
        message.FromString(bytes.fromhex(golden)).SerializeToString(deterministic=True).hex()
        == golden
    )


def test_heartbeat_bytes_on_the_wire_never_change():
    golden = (
        "0a20"
        + HASH.hex()
        + "1007"
        + "19"
        + struct.pack("<d", 1.7e9).hex()
        + "2208"
        + b"10.0.0.1".hex()
        + "28a53f"
        + "308f4e"
        + "38bd37"
        + "4001"
        + "488020"
        + "5003"
        + "5801"
        + "6002"
        + "6801"
        + "75"
        + struct.pack("<f", 0.25).hex()
        + "7801"
        + "800101"
        + "880101"
        + "900129"
        + "9a0120"
        + "00" * 32
        + "a501"
        + struct.pack("<f", 1024.0).hex()
        + "a801f303"
        + "b00101"
        + "ba0108"
        + b"instance".hex()
        + "c20108"
        + b"thetwin!".hex()
        + "c80101"
        + "e20208"
        + b"thestate".hex()
        + "ed02"
        + struct.pack("<f", 2.5).hex()
    )
    assert HEARTBEAT.encode().hex() == golden
    assert heartbeat_pb2.Heartbeat.FromString(bytes.fromhex(golden)).sequence == 7


def test_bytes_of_another_message_are_refused():
    with pytest.raises(SchemaMismatch, match="not a Skip: 3 bytes"):
        messages.parse(rounds_pb2.Skip, b"\xff\xff\xff")


OTHERS = ("2001:db8::7", "192.168.1.7", "node.example")


def test_a_heartbeat_may_name_four_hosts():
    body = dataclasses.replace(HEARTBEAT, other_hosts=OTHERS)
    assert heartbeats.decode_heartbeat(body.encode()) == body
    assert body.hosts == (HEARTBEAT.host, *OTHERS)


def test_a_heartbeat_with_its_longest_hosts_keeps_its_bound():
    longest = ".".join(["a" * 60] * 4)
    body = change(HEARTBEAT, host=longest, other_hosts=(longest, "b" * 9))
    assert heartbeats.decode_heartbeat(body)
    assert len(body) <= limits.MAX_HEARTBEAT_BYTES


@pytest.mark.parametrize(
    ("hosts", "error"),
    [
        ((*OTHERS, "10.0.0.1"), MessageTooLarge),
        ((".".join(["a" * 60] * 4), "b" * 60), MessageTooLarge),
        (("fe80::1%eth0",), SchemaMismatch),
        (("unix:/socket",), SchemaMismatch),
        (("",), SchemaMismatch),
    ],
)
def test_other_hosts_out_of_bounds_are_refused(hosts: tuple[str, ...], error: type[PeerError]):
    with pytest.raises(error):
        heartbeats.decode_heartbeat(change(HEARTBEAT, other_hosts=hosts))
