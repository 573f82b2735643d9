"""What the doors of whole nodes do: a banned member gets nowhere, a flooder loses its standing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from neuroswarm.errors import PeerUnreachable, ProtocolViolation
from neuroswarm.membership.conduct import FIRST_BAN_S, Offence
from neuroswarm.membership.door import CallerLimits
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm
from neuroswarm.values import PeerAddress
from neuroswarm.wire import limits


def address_of(member: Member) -> PeerAddress:
    return PeerAddress(member.node_id, member.parts.carriers.grpc_endpoint)


async def flood(caller: Member, target: Member) -> None:
    """Send the largest requests there are, for nothing, until the target has enough."""
    request = bytes(limits.MAX_MESSAGE_BYTES)
    for _ in range(3 * int(CallerLimits().burst_bytes / len(request))):
        with contextlib.suppress(ProtocolViolation):  # unknown method
            await caller.parts.carriers.rpc.call(
                address_of(target), "Test/Nothing", request, timeout_s=5
            )


async def test_a_member_that_offends_is_refused_at_the_door_and_shown(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl = await swarm.found("anna", "bert", "carl")
        await swarm.until_round(1)
        table, now = anna.parts.membership.peers, anna.core.now()
        assert not table.offend(carl.node_id, Offence.WRONG_PAYLOAD, now)
        assert table.offend(carl.node_id, Offence.WRONG_PAYLOAD, now)
        with pytest.raises(ProtocolViolation, match="banned"):
            await carl.parts.carriers.rpc.call(address_of(anna), "Gossip/Headers", b"", timeout_s=5)
        status = anna.parts.reporter.status()
        (ban,) = status["bans"]
        assert ban["node_id"] == carl.node_id.hex()
        assert ban["reason"] == "conduct: 2 x wrong_payload"
        assert 0 < ban["left_s"] <= FIRST_BAN_S
        (conduct,) = status["conduct"]
        assert conduct["offences"] == {"wrong_payload": 2}
        assert status["requests_of_banned"] >= 1
        assert status["is_open"] is False
        assert status["max_peers_per_address"] is None
        await swarm.more_rounds(2, (anna, bert))


async def test_a_flooding_caller_is_refused_and_noted(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        await swarm.until_round(1)
        with pytest.raises(PeerUnreachable, match="busy"):
            await flood(bert, anna)
        status = anna.parts.reporter.status()
        assert status["requests_of_floods"] >= 1
        assert {c["node_id"]: c["offences"]["flood"] for c in status["conduct"]} == {
            bert.node_id.hex(): 1
        }
