"""Broken probes, given straight to what reads them: nothing but `PeerError` comes out."""

from __future__ import annotations

import os
import random

from fuzz_mutation import Mutator

from neuroswarm.errors import PeerError
from neuroswarm.identity.sealing import Sealer
from neuroswarm.net.echo import Echo
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.v1 import probe_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire import probes
from neuroswarm.wire.sealed_calls import reply_context

NUM_INPUTS = int(os.environ.get("FUZZ_INPUTS", "1500"))
SEALER = Sealer(bytes(range(32)))


def test_probes_of_members_are_answered_or_refused():
    mutator, echo = Mutator(random.Random(6)), Echo(SEALER, FakeClock())
    request = probe_pb2.ProbeRequest(answer_bytes=200, padding=bytes(200))
    asked = probes.seal_probe(SEALER)
    peer = probe_pb2.ProbePeer(host="10.0.0.1", http_port=7101, grpc_port=8101)
    answer = probe_pb2.ProbeReply(time=1.0, observed_host="10.0.0.2", peers=[peer] * 3)
    context = reply_context(b"neuroswarm v1 probe reply", asked)

    def broken(message: probe_pb2.ProbeRequest | probe_pb2.ProbeReply) -> bytes:
        data = mutator.message(message).SerializeToString()
        return mutator.encoding(data) if mutator.rng.randrange(2) else data

    refused = 0
    for number in range(NUM_INPUTS):
        source = Endpoint(f"10.1.{number // 250}.{number % 250}", 9)
        data = SEALER.seal(broken(request), b"neuroswarm v1 probe request")
        body = SEALER.seal(broken(answer), context)
        for read in (
            lambda data=data, source=source: echo.answer(data, source),
            lambda body=body: probes.open_probe_reply(SEALER, asked, body),
        ):
            try:
                read()
            except PeerError:
                refused += 1
    assert 0 < refused < 2 * NUM_INPUTS
