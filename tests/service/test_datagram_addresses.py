"""Where datagrams may go: peers say where to send, and not every address is one machine's."""

from __future__ import annotations

import asyncio

import pytest

from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.values import Endpoint

WITHIN_S = 20.0


@pytest.mark.parametrize(
    "host",
    ["224.0.0.1", "255.255.255.255", "0.0.0.0", "::ffff:224.0.0.1", "224.1"],
    ids=["multicast", "broadcast", "unspecified", "mapped", "a name that leads to multicast"],
)
async def test_nothing_goes_to_an_address_that_is_not_one_machines(host: str):
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    transport = UdpTransport(Sealer(bytes(32)), Endpoint("127.0.0.1", 0))
    transport.on_datagram(lambda data, _source: arrived.put_nowait(data))
    async with transport, asyncio.timeout(WITHIN_S):
        port = transport.endpoint.port
        transport.send(Endpoint(host, port), b"to many, or to nobody")
        transport.send(Endpoint("localhost", port), b"here")  # names are looked up in turn
        assert await arrived.get() == b"here"
        assert transport.bytes_sent == len(b"here") + OVERHEAD_BYTES
