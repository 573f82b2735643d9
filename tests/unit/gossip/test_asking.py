"""Sources that lie, stall, break off or know nothing; served on the in-memory network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from neuroswarm.config import RoundConfig
from neuroswarm.errors import PeerError, PeerUnreachable, ProtocolViolation
from neuroswarm.gossip import asking
from neuroswarm.gossip.archive import Archive
from neuroswarm.gossip.asking import Asker, is_payload_of
from neuroswarm.gossip.serving import RoundsServer
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.statements import decode
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import Speaker
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire import limits
from neuroswarm.wire.messages import Contribution
from neuroswarm.wire.signed import Signed, sign

CFG = RoundConfig(pull_stall_s=0.3, pull_timeout_s=10.0)
ANNA, BERT, CARL = Speaker("anna"), Speaker("bert"), Speaker("carl")
ASKER = NodeId(b"?" * 20)
PARTS = (bytes(range(200)) * 3, b"second")
PAYLOAD = b"".join(PARTS)
SIGNED = ANNA.contribution(*PARTS)
HEADER = ANNA.header(*PARTS)


class Sources:
    """Peers that answer as a test says."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.rpcs: list[MemoryRpc] = []
        self.asked: list[tuple[str, int]] = []
        self.blamed: list[NodeId] = []
        self.stalled = asyncio.Event()

    def add(
        self, name: str, chunks: Callable[[int], AsyncIterator[bytes]] | None = None, **replies: Any
    ) -> PeerAddress:
        """One peer, with its stream of chunks from an offset and its other replies by method."""
        rpc = self.network.rpc(Speaker(name).node_id)
        self.rpcs.append(rpc)
        if chunks is not None:

            async def stream(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
                offset = gossip_pb2.PayloadRequest.FromString(data).offset
                self.asked.append((name, offset))
                async for piece in chunks(offset):
                    yield envelope_pb2.Chunk(data=piece).SerializeToString()

            rpc.serve_stream("Gossip/Payload", stream)
        for method, reply in replies.items():

            async def answer(_caller: NodeId, _data: bytes, reply: Any = reply) -> bytes:
                return reply if isinstance(reply, bytes) else reply.SerializeToString()

            rpc.serve_unary(f"Gossip/{method}", answer)
        return rpc.address

    async def asker(self) -> Asker:
        for rpc in self.rpcs:
            await rpc.start()
        rpc = self.network.rpc(ASKER)
        await rpc.start()
        return Asker(rpc, CFG, blame=lambda peer, _error: self.blamed.append(peer))

    async def stall(self, offset: int) -> AsyncIterator[bytes]:
        """Give ten bytes, then nothing."""
        yield PAYLOAD[offset : offset + 10]
        self.stalled.set()
        await asyncio.get_running_loop().create_future()


async def whole(offset: int) -> AsyncIterator[bytes]:
    for start in range(offset, len(PAYLOAD), 100):
        yield PAYLOAD[start : start + 100]


async def crumbs(offset: int) -> AsyncIterator[bytes]:
    """Give a byte again and again, each within the time for progress."""
    for byte in PAYLOAD[offset:]:
        for _ in range(1200):
            await asyncio.sleep(0)
        yield bytes([byte])


async def cut_short(offset: int) -> AsyncIterator[bytes]:
    yield PAYLOAD[offset : offset + 150]


async def overlong(offset: int) -> AsyncIterator[bytes]:
    yield PAYLOAD[offset:] + b"more"


async def endless_nothing(_offset: int) -> AsyncIterator[bytes]:
    while True:
        yield b""


async def forged(offset: int) -> AsyncIterator[bytes]:
    yield bytes(len(PAYLOAD) - offset)


async def pull(sources: Sources, *addresses: PeerAddress) -> bytes:
    return await (await sources.asker()).payload(SIGNED.id, HEADER, addresses)


# -- payloads ------------------------------------------------------------------------


async def test_a_payload_comes_whole_from_the_first_source():
    sources = Sources()
    assert await pull(sources, sources.add("a", whole), sources.add("b", whole)) == PAYLOAD
    assert sources.asked == [("a", 0)]


async def test_the_next_source_goes_on_where_the_one_before_broke_off():
    sources = Sources()
    assert await pull(sources, sources.add("a", cut_short), sources.add("b", whole)) == PAYLOAD
    assert sources.asked == [("a", 0), ("b", 150)]


async def test_a_source_that_stalls_is_left_for_the_next():
    sources = Sources()
    assert await pull(sources, sources.add("a", sources.stall), sources.add("b", whole)) == PAYLOAD
    assert sources.stalled.is_set()
    assert sources.asked == [("a", 0), ("b", 10)]


async def test_a_source_that_gives_crumbs_is_left_for_the_next():
    sources = Sources()
    assert await pull(sources, sources.add("a", crumbs), sources.add("b", whole)) == PAYLOAD
    (_, first), (name, offset) = sources.asked
    assert (first, name) == (0, "b")
    assert 0 < offset < len(PAYLOAD) // 2


async def test_forged_bytes_are_dropped_and_asked_for_anew():
    sources = Sources()
    assert await pull(sources, sources.add("a", forged), sources.add("b", whole)) == PAYLOAD
    assert sources.asked == [("a", 0), ("b", 0)]
    assert sources.blamed == [Speaker("a").node_id]


@pytest.mark.parametrize("lie", [overlong, endless_nothing], ids=["overlong", "nothing"])
async def test_more_or_nothing_is_not_taken(lie: Callable[[int], AsyncIterator[bytes]]):
    sources = Sources()
    assert await pull(sources, sources.add("a", lie), sources.add("b", whole)) == PAYLOAD
    assert sources.asked == [("a", 0), ("b", 0)]


async def test_a_beginning_that_one_source_forged_does_not_spoil_the_others():
    async def forged_beginning(_offset: int) -> AsyncIterator[bytes]:
        yield bytes(150)

    sources = Sources()
    addresses = [sources.add("a", forged_beginning), *(sources.add(n, whole) for n in "bc")]
    assert await pull(sources, *addresses) == PAYLOAD
    assert sources.asked == [("a", 0), ("b", 150), ("c", 0)]
    assert sources.blamed == [], "nobody can tell whose part was wrong"


async def test_without_an_honest_source_the_payload_is_not_to_be_had():
    sources = Sources()
    with pytest.raises(PeerUnreachable, match="3 peers"):
        await pull(
            sources,
            sources.add("a", forged),
            sources.add("b", cut_short),
            sources.add("c"),
        )


def test_a_payload_is_checked_piece_by_piece():
    assert is_payload_of(HEADER, PAYLOAD)
    assert not is_payload_of(HEADER, PAYLOAD[:-1])
    assert not is_payload_of(HEADER, PAYLOAD + b"x")
    assert not is_payload_of(HEADER, PARTS[1] + PARTS[0])


# -- headers, results, lineages ------------------------------------------------------


async def ask(method: str, reply: Any, *arguments: Any) -> Any:
    """Ask one source that gives this reply."""
    sources = Sources()
    address = sources.add("liar", **{method.capitalize(): reply})
    return await getattr(await sources.asker(), method)(*arguments, address)


async def test_only_headers_that_were_asked_for_are_taken():
    other = BERT.contribution(b"x")
    reply = gossip_pb2.HeadersReply(headers=[SIGNED.to_proto(), other.to_proto()])
    assert await ask("headers", reply, [SIGNED.id]) == (SIGNED,)


def forged_signature() -> envelope_pb2.Signed:
    message = SIGNED.to_proto()
    message.signature = bytes(64)
    return message


@pytest.mark.parametrize(
    "headers",
    [
        [forged_signature()],
        [ANNA.ballot().to_proto()],
        [SIGNED.to_proto()] * (limits.MAX_HEADERS + 1),
    ],
    ids=["forged", "another kind", "too many"],
)
async def test_bad_headers_are_refused(headers: list[envelope_pb2.Signed]):
    with pytest.raises(ProtocolViolation):
        await ask("headers", gossip_pb2.HeadersReply(headers=headers), [SIGNED.id])


AGREED = (SIGNED.id,)
CONFIRMS = [speaker.confirm(AGREED).to_proto() for speaker in (ANNA, BERT, CARL)]


def result(**changes: Any) -> gossip_pb2.ResultReply:
    fields = {
        "is_known": True,
        "headers": [SIGNED.to_proto()],
        "confirms": CONFIRMS,
        "next_digest": b"n" * 32,
    }
    return gossip_pb2.ResultReply(**(fields | changes))


async def test_a_result_has_its_confirms_and_headers_verified():
    found = await ask("result", result(), 0, bytes(32))
    assert found.contributions == AGREED
    assert {confirm.signer for confirm in found.confirms} == {
        speaker.node_id for speaker in (ANNA, BERT, CARL)
    }
    assert found.headers == (SIGNED,)


@pytest.mark.parametrize("replies", [False, True])
@pytest.mark.parametrize("num_lost", [1, 2])
async def test_lost_messages_cost_no_more_than_short_waits(
    replies: bool, num_lost: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(asking, "QUICK_TIMEOUT_S", 0.05)
    sources = Sources()
    address = sources.add("honest", Result=result())
    lost = sources.network.drop(method="Gossip/Result", when=num_lost, replies=replies)
    async with asyncio.timeout(asking.ASK_TIMEOUT_S):
        found = await (await sources.asker()).result(0, bytes(32), address)
    assert found is not None
    assert found.contributions == AGREED
    assert lost.fired == num_lost


async def test_a_result_may_be_unknown():
    assert await ask("result", gossip_pb2.ResultReply(is_known=False), 0, bytes(32)) is None


@pytest.mark.parametrize(
    "reply",
    [
        result(confirms=[]),
        result(confirms=[*CONFIRMS, Speaker("dora").confirm([]).to_proto()]),
        result(confirms=[Speaker("dora", round_=1).confirm(AGREED).to_proto()]),
        result(confirms=[Speaker("dora", base=b"b" * 32).confirm(AGREED).to_proto()]),
        result(confirms=[ANNA.ballot(AGREED).to_proto()]),
        result(headers=[forged_signature()]),
        b"\xff\xff",
    ],
    ids=["none", "two sets", "another round", "another base", "ballots", "forged", "junk"],
)
async def test_results_that_prove_nothing_are_refused(reply: gossip_pb2.ResultReply | bytes):
    with pytest.raises(ProtocolViolation):
        await ask("result", reply, 0, bytes(32))


def lineage(*rounds: gossip_pb2.LineageRound, **changes: Any) -> gossip_pb2.LineageReply:
    fields = {"rounds": rounds, "round": 1, "digest": b"n" * 32}
    return gossip_pb2.LineageReply(**(fields | changes))


def told(**changes: Any) -> gossip_pb2.LineageRound:
    fields = {"round": 0, "base_digest": bytes(32), "next_digest": b"n" * 32, "confirms": CONFIRMS}
    return gossip_pb2.LineageRound(**(fields | changes))


async def test_a_lineage_has_its_signers_verified():
    claim = await ask("lineage", lineage(told(), known_digest=b"k" * 32), 0, 7)
    (round_,) = claim.finished
    assert round_.signers == {speaker.node_id for speaker in (ANNA, BERT, CARL)}
    assert (claim.round, claim.digest) == (1, b"n" * 32)
    assert claim.known == (7, b"k" * 32)


@pytest.mark.parametrize(
    "reply",
    [
        lineage(digest=b""),
        lineage(told(next_digest=b"x" * 32)),
        lineage(*(told(round=r) for r in range(limits.MAX_LINEAGE_ROUNDS + 1))),
        lineage(told(confirms=[Speaker("dora", round_=1).confirm(AGREED).to_proto()])),
        lineage(told(confirms=[*CONFIRMS, Speaker("dora").confirm([]).to_proto()])),
        lineage(told(confirms=[forged_signature()])),
        lineage(
            *(
                told(
                    round=r,
                    base_digest=bytes(32),
                    next_digest=bytes(32),
                    confirms=[Speaker("dora", round_=r).confirm(AGREED).to_proto()],
                )
                for r in range(limits.MAX_SHOWN_ROUNDS + 1)
            ),
            round=limits.MAX_SHOWN_ROUNDS + 1,
            digest=bytes(32),
        ),
    ],
    ids=["no state", "no chain", "too long", "another round", "two sets", "forged", "all shown"],
)
async def test_lineages_that_cannot_be_are_refused(reply: gossip_pb2.LineageReply):
    with pytest.raises(ProtocolViolation):
        await ask("lineage", reply, 0, 0)


# -- against the real server ---------------------------------------------------------


class Records:
    """What one node holds after a round."""

    def __init__(self, *, with_payload: bool = True) -> None:
        self.archive = Archive(10**6)
        header = decode(SIGNED)
        assert isinstance(header, Contribution)
        self.archive.add_header(SIGNED, header)
        if with_payload:
            self.archive.add_payload(SIGNED.id, PAYLOAD)
        confirms = tuple(speaker.confirm(AGREED) for speaker in (ANNA, BERT, CARL))
        self.history: History | None = History(0, bytes(32))
        self.history.append(FinishedRound(0, bytes(32), b"n" * 32, AGREED, confirms))


async def serve(records: Records) -> tuple[Asker, PeerAddress]:
    sources = Sources()
    address = sources.add("honest")
    RoundsServer(sources.rpcs[0], records)
    return await sources.asker(), address


async def test_an_honest_node_answers_all_questions():
    asker, honest = await serve(Records())
    assert await asker.headers([SIGNED.id, b"?" * 32], honest) == (SIGNED,)
    assert await asker.payload(SIGNED.id, HEADER, [honest]) == PAYLOAD
    found = await asker.result(0, bytes(32), honest)
    assert found is not None
    assert found.contributions == AGREED
    assert found.next_digest == b"n" * 32
    claim = await asker.lineage(0, 0, honest)
    assert (claim.round, claim.digest) == (1, b"n" * 32)
    assert claim.known == (0, bytes(32))


async def test_a_node_does_not_tell_how_a_round_ended_that_cannot_be_replayed_from_it():
    asker, honest = await serve(Records(with_payload=False))
    assert await asker.result(0, bytes(32), honest) is None
    with pytest.raises(PeerError):
        await asker.payload(SIGNED.id, HEADER, [honest])


async def test_a_node_without_a_state_has_no_lineage():
    records = Records()
    records.history = None
    asker, newcomer = await serve(records)
    assert await asker.result(0, bytes(32), newcomer) is None
    with pytest.raises(ProtocolViolation, match="no outer state"):
        await asker.lineage(0, 0, newcomer)


def padded(signed: Signed, key: NodeKey) -> Signed:
    """The same statement by another signer, as long as one may be."""
    room = signed.kind.max_body_bytes - len(signed.body) - 8
    field_100_of_bytes = b"\xa2\x06" + bytes((room & 127 | 128, room >> 7 & 127 | 128, room >> 14))
    return sign(signed.kind, signed.body + field_100_of_bytes + bytes(room), key)


async def test_no_answer_is_larger_than_a_message_whatever_peers_have_signed():
    records = Records()
    made_up = [NodeKey.generate() for _ in range(80)]
    headers = [padded(SIGNED, key) for key in made_up]
    for signed in headers:
        header = decode(signed)
        assert isinstance(header, Contribution)
        records.archive.add_header(signed, header)
        records.archive.add_payload(signed.id, PAYLOAD)
    agreed = tuple(sorted(signed.id for signed in headers))
    history = History(0, bytes(32))
    for round_ in range(3):
        confirm = Speaker("anna", round_=round_).confirm(agreed)
        confirms = tuple(padded(confirm, key) for key in made_up)
        history.append(FinishedRound(round_, bytes(32), bytes(32), agreed, confirms[:40]))
        for late in confirms[40:]:
            history.add_confirm(round_, late)
    records.history = history
    asker, honest = await serve(records)
    found = await asker.headers(agreed, honest)
    assert len(found) >= limits.MAX_MESSAGE_BYTES // 2 // limits.MAX_BODY_BYTES - 1
    result = await asker.result(1, bytes(32), honest)
    assert result is not None
    assert result.contributions == agreed
    assert len(result.confirms) > 10
    assert len((await asker.lineage(0, 0, honest)).finished) == 3


async def test_too_many_questions_at_once_are_refused():
    sources = Sources()
    address = sources.add("honest")
    RoundsServer(sources.rpcs[0], Records())
    await sources.asker()
    rpc = sources.network.rpc(ASKER)
    await rpc.start()
    request = gossip_pb2.HeadersRequest(contributions=[bytes(32)] * (limits.MAX_HEADERS + 1))
    with pytest.raises(ProtocolViolation, match="too many headers"):
        await rpc.call(address, "Gossip/Headers", request.SerializeToString(), timeout_s=5)
