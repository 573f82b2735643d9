import pytest

from neuroswarm.errors import BadSignature, PeerError
from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.net.echo import BURST, Echo
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes

SEALER = Sealer(b"k" * 32)
SOURCE = Endpoint("10.0.0.5", 40000)


@pytest.mark.parametrize("size", [100, 128, 500, limits.MAX_DATAGRAM_BYTES - 8])
def test_the_answer_tells_the_source_and_is_never_longer_than_the_question(size: int):
    clock = FakeClock()
    request = probes.seal_probe(SEALER, num_bytes=size, answer_bytes=limits.MAX_PROBE_BYTES)
    answer = Echo(SEALER, clock).answer(request, SOURCE)
    assert answer is not None
    assert len(request) - 80 < len(answer) <= len(request)
    reply = probes.open_probe_reply(SEALER, request, answer)
    assert (reply.observed, reply.time) == (SOURCE, clock.wall())


def test_the_longest_of_numeric_addresses_fits():
    request = probes.seal_probe(SEALER, num_bytes=128, answer_bytes=128)
    source = Endpoint("::ffff:ffff:ffff:ffff:255.255.255.255%interface0000", 65535)
    assert Echo(SEALER, FakeClock()).answer(request, source) is not None


def test_a_question_that_is_shorter_than_any_answer_gets_none():
    echo = Echo(SEALER, FakeClock())
    assert echo.answer(probes.seal_probe(SEALER), SOURCE) is None


def test_what_is_no_probe_of_this_swarm_is_said_to_be_none():
    echo = Echo(SEALER, FakeClock())
    with pytest.raises(BadSignature):
        echo.answer(probes.seal_probe(Sealer(b"x" * 32), num_bytes=200), SOURCE)
    with pytest.raises(BadSignature):
        echo.answer(bytes(OVERHEAD_BYTES), SOURCE)
    with pytest.raises(PeerError):
        echo.answer(SEALER.seal(b"\xff", b"neuroswarm v1 probe request"), SOURCE)


def test_an_address_that_asks_too_often_waits():
    clock = FakeClock()
    echo = Echo(SEALER, clock)

    def ask(source: Endpoint) -> bool:
        request = probes.seal_probe(SEALER, num_bytes=128, answer_bytes=128)
        return echo.answer(request, source) is not None

    assert [ask(SOURCE) for _ in range(int(BURST) + 5)] == [True] * int(BURST) + [False] * 5
    assert ask(Endpoint("10.0.0.6", 1))
    clock.stop(10.0)
    assert ask(SOURCE)
