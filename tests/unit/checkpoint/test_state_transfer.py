"""Downloads of a state: whole and exact, or refused; from honest donors and from liars."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

import pytest
import torch

from neuroswarm.checkpoint import transfer
from neuroswarm.checkpoint.transfer import StateDonor, download_state, shape_of
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import PeerError, PeerUnreachable, ProtocolViolation, SchemaMismatch
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import ARCHITECTURE, Speaker
from neuroswarm.v1 import envelope_pb2, state_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

SIZES = (70_000, 5)
"""The first fragment takes three chunks: 8 bytes a parameter."""

NAMES = ("large", "small")
SHAPE = shape_of(NAMES, SIZES)
DONOR, ASKER = Speaker("donor"), Speaker("asker")


def make_state(round_: int = 7, seed: int = 0) -> OuterState:
    source = torch.Generator().manual_seed(seed)
    fragments = tuple(
        FragmentState(
            name, torch.randn(size, generator=source), torch.randn(size, generator=source)
        )
        for name, size in SHAPE
    )
    table = {ASKER.node_id: ((6, b"i" * 32),), DONOR.node_id: ((5, b"j" * 32), (6, b"k" * 32))}
    return OuterState(round_, fragments, table, Rules(codec_block=16), ARCHITECTURE)


STATE = make_state()
Tamper = Callable[[bytes], bytes]


async def start(network: MemoryNetwork) -> MemoryRpc:
    rpc = network.rpc(ASKER.node_id)
    await rpc.start()
    return rpc


async def download(
    *states: OuterState,
    digest: bytes = STATE.digest,
    architecture: bytes = ARCHITECTURE,
    shape: tuple[tuple[str, int], ...] = SHAPE,
) -> OuterState:
    """Download from an honest donor that holds these states."""
    network = MemoryNetwork()
    donor = network.rpc(DONOR.node_id)
    StateDonor(donor, lambda: states)
    await donor.start()
    asker = await start(network)
    return await download_state(
        asker, donor.address, digest, architecture=architecture, shape=shape
    )


async def test_a_downloaded_state_has_the_same_bits():
    found = await download(make_state(8, seed=1), STATE)
    assert found.digest == STATE.digest
    assert (found.round, found.rules, found.applied) == (7, STATE.rules, STATE.applied)
    for mine, its in zip(found.fragments, STATE.fragments, strict=True):
        assert mine.name == its.name
        assert torch.equal(mine.params, its.params)
        assert torch.equal(mine.momentum, its.momentum)


async def test_a_state_that_is_gone_is_not_to_be_had():
    with pytest.raises(PeerUnreachable, match="gone"):
        await download(make_state(8, seed=1))


async def test_a_state_of_another_architecture_is_refused():
    with pytest.raises(SchemaMismatch, match="another architecture"):
        await download(STATE, architecture=b"a" * 32)


@pytest.mark.parametrize(
    "shape",
    [SHAPE[:1], SHAPE[::-1], (("large", 70_001), SHAPE[1]), (("other", 70_000), SHAPE[1])],
    ids=["fewer", "order", "size", "name"],
)
async def test_a_state_of_other_fragments_is_refused(shape: tuple[tuple[str, int], ...]):
    with pytest.raises(SchemaMismatch, match="other fragments"):
        await download(STATE, shape=shape)


# -- liars ---------------------------------------------------------------------------


async def download_from_liar(
    *,
    manifest: Callable[[state_pb2.StateManifest], None] = lambda _: None,
    chunks: Callable[[int, list[bytes]], list[bytes]] = lambda _, pieces: pieces,
    state: OuterState = STATE,
) -> OuterState:
    """Download `STATE` from a donor that changes its manifest or the chunks of fragments."""
    network = MemoryNetwork()
    honest, liar = network.rpc(DONOR.node_id), network.rpc(Speaker("liar").node_id)
    StateDonor(honest, lambda: (state,))
    await honest.start()

    async def lie_in_manifest(_caller: NodeId, data: bytes) -> bytes:
        reply = await liar.call(honest.address, "State/Manifest", data, timeout_s=5)
        message = state_pb2.StateManifest.FromString(reply)
        manifest(message)
        return message.SerializeToString()

    async def lie_in_chunks(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        index = state_pb2.FragmentRequest.FromString(data).fragment
        stream = liar.stream(honest.address, "State/Fragment", data, timeout_s=5)
        pieces = [envelope_pb2.Chunk.FromString(message).data async for message in stream]
        for piece in chunks(index, pieces):
            yield envelope_pb2.Chunk(data=piece).SerializeToString()

    liar.serve_unary("State/Manifest", lie_in_manifest)
    liar.serve_stream("State/Fragment", lie_in_chunks)
    await liar.start()
    asker = await start(network)
    return await download_state(
        asker, liar.address, STATE.digest, architecture=ARCHITECTURE, shape=SHAPE
    )


async def test_the_liar_of_these_tests_is_honest_unless_told_otherwise():
    assert (await download_from_liar()).digest == STATE.digest


def set_leaf(message: state_pb2.StateManifest) -> None:
    message.fragments[0].leaf = b"l" * 32


def shorten_leaf(message: state_pb2.StateManifest) -> None:
    message.fragments[0].leaf = b"short"


def set_round(message: state_pb2.StateManifest) -> None:
    message.round = 8


def change_rules(message: state_pb2.StateManifest) -> None:
    message.rules = Rules(codec_block=32).to_bytes()


def swell_rules(message: state_pb2.StateManifest) -> None:
    message.rules = bytes(limits.MAX_RULES_BYTES + 1)


def add_applied(message: state_pb2.StateManifest) -> None:
    message.applied.add(node_id=b"n" * 20, round=6, contribution=b"c" * 32)


def bad_node_id(message: state_pb2.StateManifest) -> None:
    message.applied.add(node_id=b"short", round=6, contribution=b"c" * 32)


@pytest.mark.parametrize(
    "lie",
    [set_leaf, shorten_leaf, set_round, change_rules, swell_rules, add_applied, bad_node_id],
    ids=lambda lie: lie.__name__,
)
async def test_a_manifest_that_is_not_of_the_digest_is_refused(
    lie: Callable[[state_pb2.StateManifest], None],
):
    with pytest.raises(ProtocolViolation):
        await download_from_liar(manifest=lie)


def flip(_index: int, pieces: list[bytes]) -> list[bytes]:
    return [bytes([pieces[0][0] ^ 1]) + pieces[0][1:], *pieces[1:]]


def lose_end(_index: int, pieces: list[bytes]) -> list[bytes]:
    return [*pieces[:-1], pieces[-1][:-1]]


def lose_chunk(_index: int, pieces: list[bytes]) -> list[bytes]:
    return pieces[1:]


def say_more(_index: int, pieces: list[bytes]) -> list[bytes]:
    return [*pieces[:-1], pieces[-1] + b"more"]


def say_nothing(_index: int, _pieces: list[bytes]) -> list[bytes]:
    return [b""]


def not_finite(_index: int, pieces: list[bytes]) -> list[bytes]:
    return [b"\x00\x00\xc0\x7f" + pieces[0][4:], *pieces[1:]]


def second_is_zero(index: int, pieces: list[bytes]) -> list[bytes]:
    return pieces if index == 0 else [bytes(len(piece)) for piece in pieces]


@pytest.mark.parametrize(
    "lie",
    [flip, lose_end, lose_chunk, say_more, say_nothing, not_finite, second_is_zero],
    ids=lambda lie: lie.__name__,
)
async def test_a_fragment_that_is_not_the_one_promised_is_refused(
    lie: Callable[[int, list[bytes]], list[bytes]],
):
    with pytest.raises(PeerError):
        await download_from_liar(chunks=lie)


async def test_another_state_is_not_taken_for_the_one_asked_for():
    network = MemoryNetwork()
    donor = network.rpc(DONOR.node_id)
    other = make_state(7, seed=2)

    async def give_other(_caller: NodeId, _data: bytes) -> bytes:
        request = state_pb2.ManifestRequest(digest=other.digest).SerializeToString()
        return await helper.call(honest.address, "State/Manifest", request, timeout_s=5)

    honest, helper = network.rpc(NodeId(b"h" * 20)), network.rpc(NodeId(b"x" * 20))
    StateDonor(honest, lambda: (other,))
    donor.serve_unary("State/Manifest", give_other)
    for rpc in (honest, helper, donor):
        await rpc.start()
    with pytest.raises(ProtocolViolation, match="digest asked for"):
        await download_state(
            await start(network),
            donor.address,
            STATE.digest,
            architecture=ARCHITECTURE,
            shape=SHAPE,
        )


async def test_a_donor_refuses_fragments_that_it_does_not_hold():
    network = MemoryNetwork()
    donor = network.rpc(DONOR.node_id)
    StateDonor(donor, lambda: (STATE,))
    await donor.start()
    asker = await start(network)
    for digest, fragment in ((b"?" * 32, 0), (STATE.digest, len(SIZES))):
        request = state_pb2.FragmentRequest(digest=digest, fragment=fragment)
        stream = asker.stream(
            donor.address, "State/Fragment", request.SerializeToString(), timeout_s=5
        )
        with pytest.raises(ProtocolViolation, match="not held"):
            await anext(stream)


async def test_a_broken_download_can_go_on_at_an_offset():
    network = MemoryNetwork()
    donor = network.rpc(DONOR.node_id)
    StateDonor(donor, lambda: (STATE,))
    await donor.start()
    asker = await start(network)

    async def fetch(offset: int) -> bytes:
        request = state_pb2.FragmentRequest(digest=STATE.digest, fragment=0, offset=offset)
        stream = asker.stream(
            donor.address, "State/Fragment", request.SerializeToString(), timeout_s=5
        )
        return b"".join([envelope_pb2.Chunk.FromString(m).data async for m in stream])

    whole = await fetch(0)
    assert len(whole) == 8 * SIZES[0]
    for offset in (1, 4 * SIZES[0] - 3, 4 * SIZES[0], len(whole) - 1):
        assert await fetch(offset) == whole[offset:]


async def test_a_donor_that_gives_crumbs_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transfer, "STALL_S", 0.05)
    network = MemoryNetwork()
    donor = network.rpc(DONOR.node_id)
    honest = StateDonor(network.rpc(NodeId(b"h" * 20)), lambda: [STATE])
    donor.serve_unary("State/Manifest", honest._on_manifest)
    num_crumbs = 0

    async def crumbs(_caller: NodeId, _data: bytes) -> AsyncIterator[bytes]:
        nonlocal num_crumbs
        while True:
            await asyncio.sleep(0)
            num_crumbs += 1
            yield envelope_pb2.Chunk(data=b"x").SerializeToString()

    donor.serve_stream("State/Fragment", crumbs)
    await donor.start()
    with pytest.raises(PeerUnreachable, match="no progress"):
        await download_state(
            await start(network), donor.address, STATE.digest,
            architecture=ARCHITECTURE, shape=SHAPE,
        )  # fmt: skip
    assert num_crumbs > 1


async def test_a_state_of_a_round_without_rounds_after_it_is_refused():
    last = dataclasses.replace(STATE, round=transfer.MAX_ROUND)
    assert (await download(last, digest=last.digest)).round == transfer.MAX_ROUND
    beyond = dataclasses.replace(STATE, round=transfer.MAX_ROUND + 1)
    with pytest.raises(SchemaMismatch, match="state of round"):
        await download(beyond, digest=beyond.digest)
