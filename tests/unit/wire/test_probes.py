import pytest

from neuroswarm.errors import BadSignature, MessageTooLarge, SchemaMismatch
from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.v1 import probe_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes
from neuroswarm.wire.sealed_calls import reply_context

SEALER = Sealer(b"k" * 32)
NEIGHBOUR = probes.Neighbour("10.0.0.6", 7101, 8101, 9999)
REPLY = probes.ProbeReply(1.8e9, Endpoint("10.0.0.5", 0), 8101, 9999, (NEIGHBOUR,))


@pytest.mark.parametrize("size", [0, 1, limits.MAX_PROBE_BYTES])
def test_sizes_of_question_and_answer(size: int):
    request = probes.seal_probe(SEALER, num_bytes=size, answer_bytes=size)
    assert len(request) >= size
    assert probes.open_probe(SEALER, request) == size
    answer = probes.seal_probe_reply(SEALER, request, REPLY, num_bytes=size)
    assert len(answer) >= size
    assert probes.open_probe_reply(SEALER, request, answer) == REPLY


def test_bytes_on_the_wire_stay_what_they_are():
    request = probe_pb2.ProbeRequest(answer_bytes=5, padding=bytes(2))
    assert request.SerializeToString().hex() == "080512020000"
    answer = probe_pb2.ProbeReply(
        time=1.0, observed_host="h", observed_port=1, grpc_port=2, heartbeat_port=3, padding=b"\0"
    )
    assert answer.SerializeToString().hex() == "09000000000000f03f1201681801200228033a0100"


def test_an_answer_opens_for_its_own_question_only():
    first, second = probes.seal_probe(SEALER), probes.seal_probe(SEALER)
    answer = probes.seal_probe_reply(SEALER, first, REPLY)
    with pytest.raises(BadSignature):
        probes.open_probe_reply(SEALER, second, answer)
    with pytest.raises(BadSignature):
        probes.open_probe(Sealer(b"x" * 32), first)


def test_too_large_a_question_is_not_even_made():
    with pytest.raises(ValueError, match="limit 65536"):
        probes.seal_probe(SEALER, answer_bytes=limits.MAX_PROBE_BYTES + 1)


def seal_raw(request: probe_pb2.ProbeRequest) -> bytes:
    return SEALER.seal(request.SerializeToString(), b"neuroswarm v1 probe request")


def test_questions_above_the_limits_are_refused():
    with pytest.raises(MessageTooLarge, match="answer wanted"):
        probes.open_probe(
            SEALER, seal_raw(probe_pb2.ProbeRequest(answer_bytes=limits.MAX_PROBE_BYTES + 1))
        )
    with pytest.raises(MessageTooLarge, match="body"):
        probes.open_probe(SEALER, bytes(limits.MAX_PROBE_BYTES + 1000))
    with pytest.raises(SchemaMismatch):
        probes.open_probe(SEALER, SEALER.seal(b"\xff", b"neuroswarm v1 probe request"))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"time": float("nan")}, SchemaMismatch),
        ({"time": 1e308}, SchemaMismatch),
        ({"observed_host": "x" * 254}, MessageTooLarge),
        ({"observed_host": "a\nb"}, SchemaMismatch),
        ({"observed_host": "\u00fc"}, SchemaMismatch),
        ({"observed_port": 65536}, SchemaMismatch),
        ({"grpc_port": 65536}, SchemaMismatch),
        ({"peers": [probe_pb2.ProbePeer(host="a")] * 5}, MessageTooLarge),
        ({"peers": [probe_pb2.ProbePeer(http_port=70000)]}, SchemaMismatch),
    ],
)
def test_answers_that_no_node_gives_are_refused(changes: dict[str, object], error: type):
    request = probes.seal_probe(SEALER)
    message = probe_pb2.ProbeReply(**changes)
    context = reply_context(b"neuroswarm v1 probe reply", request)
    with pytest.raises(error):
        probes.open_probe_reply(SEALER, request, SEALER.seal(message.SerializeToString(), context))


def test_the_largest_answer_is_within_its_bound():
    longest = probes.Neighbour("h" * limits.MAX_HOST_CHARS, 65535, 65535, 65535)
    reply = probes.ProbeReply(
        1.0, Endpoint("h" * limits.MAX_HOST_CHARS, 65535), 65535, 65535, (longest,) * 9
    )
    request = probes.seal_probe(SEALER)
    answer = probes.seal_probe_reply(SEALER, request, reply, num_bytes=limits.MAX_PROBE_BYTES)
    opened = probes.open_probe_reply(SEALER, request, answer)
    assert opened.peers == (longest,) * limits.MAX_PROBE_PEERS
    assert len(answer) > limits.MAX_PROBE_BYTES + OVERHEAD_BYTES
