"""When a node relays for nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from neuroswarm.config.sections import RelayConfig
from neuroswarm.errors import ProtocolViolation
from neuroswarm.relay.desk import ATTACH, RelayDesk
from neuroswarm.relay.switchboard import Switchboard
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.values import NodeId
from neuroswarm.wire.relaying import SESSION_BYTES, Attachment


@pytest.mark.parametrize(
    ("is_enabled", "is_capped", "reason"),
    [(False, False, "relay.enabled is off"), (True, True, "data cap is near")],
)
async def test_nobody_is_attached(is_enabled: bool, is_capped: bool, reason: str):
    network = MemoryNetwork()
    relay, client = network.rpc(NodeId(b"r" * 20)), network.rpc(NodeId(b"c" * 20))
    desk = RelayDesk(
        RelayConfig(enabled=is_enabled),
        relay,
        Switchboard(),
        blame=lambda _caller: None,
        clock=FakeClock(),
    )
    desk.may_relay = lambda: not is_capped
    attachment = Attachment(bytes(SESSION_BYTES), takes_pipes=True).encode()

    async def attach() -> AsyncIterator[bytes]:
        async for message in client.stream(relay.address, ATTACH, attachment, timeout_s=5):
            yield message

    async with relay, client:
        with pytest.raises(ProtocolViolation, match=reason):
            await anext(attach())
    assert desk.board.num_lines == 0
