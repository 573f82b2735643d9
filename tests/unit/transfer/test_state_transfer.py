"""Downloads of a state: whole and exact, or refused; from honest donors and from liars."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import torch
from transfer_scene import LAYOUT, MANIFEST, PIECE, SHAPE, STATE, Scene, make_state, node

from neuroswarm.diloco.pieces import Shape
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import PeerUnreachable, ProtocolViolation, WrongPayload
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.speaker import Speaker
from neuroswarm.transfer import download, piece_crew, state_manifest
from neuroswarm.transfer.donor_pool import NUM_DONORS, PIECES_PER_DONOR
from neuroswarm.transfer.incoming import MAX_INCOMING
from neuroswarm.transfer.upload_bounds import (
    LONGEST_S,
    PIN_S,
    REST_S,
    SLOT_S,
    Pace,
    Place,
    Places,
)
from neuroswarm.v1 import state_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

IN_FLIGHT = NUM_DONORS * PIECES_PER_DONOR
BIG = make_state(shape=(("only", 2_000_000),))
"""16 pieces."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(piece_crew, "LOOK_S", 0.01)


def are_equal(found: OuterState, wanted: OuterState) -> bool:
    pairs = zip(found.fragments, wanted.fragments, strict=True)
    return found.digest == wanted.digest and all(
        a.name == b.name and torch.equal(a.params, b.params) and torch.equal(a.momentum, b.momentum)
        for a, b in pairs
    )


@pytest.mark.parametrize("num_donors", [1, 2, 3, 5])
async def test_a_downloaded_state_has_the_same_bits(num_donors: int):
    scene = Scene()
    for k in range(num_donors):
        await scene.donor(f"donor {k}", make_state(8, seed=1), STATE)
    found = await scene.download()
    assert are_equal(found, STATE)
    assert (found.round, found.rules, found.applied) == (7, STATE.rules, STATE.applied)
    assert len(scene.bytes_by) == min(num_donors, NUM_DONORS)
    assert scene.fetched_share() == 1.0
    assert sorted(piece for _, piece, _ in scene.requests) == list(range(LAYOUT.num_pieces))
    assert not scene.blamed


async def test_a_state_without_any_parameter_needs_no_piece():
    empty = make_state(shape=(("nothing", 0),))
    scene = Scene()
    await scene.donor("donor", empty)
    downloader = await scene.downloader(shape=(("nothing", 0),))
    found = await downloader.fetch(empty.digest, lambda: scene.addresses)
    assert are_equal(found, empty)
    assert not scene.requests


async def test_a_state_that_is_gone_is_not_to_be_had():
    scene = Scene()
    await scene.donor("donor", make_state(8, seed=1))
    with pytest.raises(PeerUnreachable, match="not to be had"):
        await scene.download()
    assert not scene.blamed


async def test_who_asks_for_a_download_under_way_waits_for_it():
    scene = Scene()
    await scene.donor("donor", STATE)
    downloader = await scene.downloader()
    found = await asyncio.gather(
        *(downloader.fetch(STATE.digest, lambda: scene.addresses) for _ in range(3))
    )
    assert found[0] is found[1] is found[2]
    assert scene.fetched_share() == 1.0


async def test_how_far_it_is_can_be_seen():
    scene = Scene()
    await scene.donor("donor", STATE)
    downloader = await scene.downloader()
    seen = []
    scene.network.drop(when=lambda _: bool(seen.append(downloader.progress())))
    await downloader.fetch(STATE.digest, lambda: scene.addresses)
    told = [progress for progress in seen if progress is not None]
    assert told[-1]["percent"] > told[0]["percent"] == 0
    assert told[-1]["donors"] == [node("donor").hex()]
    assert told[-1]["digest"] == STATE.digest.hex()
    assert told[-1]["mbit_per_s"] > 0
    assert downloader.progress() is None
    assert downloader.bytes_fetched == LAYOUT.num_bytes


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# -- liars ---------------------------------------------------------------------------


def set_hash(message: state_pb2.StateManifest) -> None:
    message.fragments[0].pieces = b"l" * len(message.fragments[0].pieces)


def one_piece_more(message: state_pb2.StateManifest) -> None:
    message.fragments[0].pieces += b"m" * 32


def one_piece_less(message: state_pb2.StateManifest) -> None:
    message.fragments[0].pieces = message.fragments[0].pieces[:-32]


def piece_of_nothing(message: state_pb2.StateManifest) -> None:
    message.fragments[1].pieces = b"m" * 32


def cut_hash(message: state_pb2.StateManifest) -> None:
    message.fragments[0].pieces = message.fragments[0].pieces[:-1]


def set_round(message: state_pb2.StateManifest) -> None:
    message.round = 8


def set_architecture(message: state_pb2.StateManifest) -> None:
    message.architecture = b"a" * 32


def set_size(message: state_pb2.StateManifest) -> None:
    message.fragments[0].num_params += 1


def set_huge_size(message: state_pb2.StateManifest) -> None:
    message.fragments[0].num_params = 2**63


def set_name(message: state_pb2.StateManifest) -> None:
    message.fragments[0].name = "other"


def one_fragment_less(message: state_pb2.StateManifest) -> None:
    del message.fragments[-1]


def change_rules(message: state_pb2.StateManifest) -> None:
    message.rules = Rules(codec_block=32).to_bytes()


def swell_rules(message: state_pb2.StateManifest) -> None:
    message.rules = bytes(limits.MAX_RULES_BYTES + 1)


def add_applied(message: state_pb2.StateManifest) -> None:
    message.applied.add(node_id=b"n" * 20, round=6, contribution=b"c" * 32)


def bad_node_id(message: state_pb2.StateManifest) -> None:
    message.applied.add(node_id=b"short", round=6, contribution=b"c" * 32)


MANIFEST_LIES = [
    set_hash, one_piece_more, one_piece_less, piece_of_nothing, cut_hash, set_round,
    set_architecture, set_size, set_huge_size, set_name, one_fragment_less, change_rules,
    swell_rules, add_applied, bad_node_id,
]  # fmt: skip


@pytest.mark.parametrize("lie", MANIFEST_LIES, ids=lambda lie: lie.__name__)
async def test_a_manifest_that_is_not_of_the_digest_is_blamed_and_others_are_asked(
    lie: Callable[[state_pb2.StateManifest], None],
):
    scene = Scene()
    await scene.liar("liar", manifest=lie)
    await scene.donor("honest", STATE)
    assert are_equal(await scene.download(), STATE)
    assert [peer for peer, _ in scene.blamed] == [node("liar")]
    assert isinstance(scene.blamed[0][1], ProtocolViolation)


async def test_nothing_is_asked_for_of_a_manifest_that_lies():
    scene = Scene()
    await scene.liar("liar", manifest=one_piece_more)
    with pytest.raises(PeerUnreachable, match="not to be had"):
        await scene.download()
    assert not scene.requests


async def test_a_state_of_another_architecture_is_not_downloaded():
    scene = Scene()
    await scene.donor("donor", STATE)
    downloader = await scene.downloader(architecture=b"a" * 32)
    with pytest.raises(PeerUnreachable, match="not to be had"):
        await downloader.fetch(STATE.digest, lambda: scene.addresses)
    assert not scene.requests


@pytest.mark.parametrize(
    "shape",
    [SHAPE[:1], SHAPE[::-1], (("large", 70_001), *SHAPE[1:]), (("other", 400_001), *SHAPE[1:])],
    ids=["fewer", "order", "size", "name"],
)
async def test_a_state_of_other_fragments_is_not_downloaded(shape: Shape):
    scene = Scene()
    await scene.donor("donor", STATE)
    downloader = await scene.downloader(shape=shape)
    with pytest.raises(PeerUnreachable, match="not to be had"):
        await downloader.fetch(STATE.digest, lambda: scene.addresses)
    assert not scene.requests


async def test_a_state_of_a_round_without_rounds_after_it_is_refused():
    last = dataclasses.replace(STATE, round=state_manifest.MAX_ROUND)
    beyond = dataclasses.replace(STATE, round=state_manifest.MAX_ROUND + 1)
    scene = Scene()
    await scene.donor("donor", last, beyond)
    downloader = await scene.downloader()
    found = await downloader.fetch(last.digest, lambda: scene.addresses)
    assert found.round == state_manifest.MAX_ROUND
    with pytest.raises(PeerUnreachable):
        await downloader.fetch(beyond.digest, lambda: scene.addresses)


async def test_a_state_that_is_not_finite_is_refused():
    state = make_state()
    state.fragments[0].params[7] = float("nan")
    scene = Scene()
    await scene.donor("donor", state)
    with pytest.raises(ProtocolViolation, match="not finite"):
        await scene.download(state.digest)


def chunk(data: bytes, refusal: int = 0) -> bytes:
    return state_pb2.PieceChunk(data=data, refusal=refusal).SerializeToString()


def flip(_index: int, messages: list[bytes]) -> list[bytes]:
    first = bytearray(state_pb2.PieceChunk.FromString(messages[0]).data)
    first[0] ^= 1
    return [chunk(bytes(first)), *messages[1:]]


def another_piece(index: int, messages: list[bytes]) -> list[bytes]:
    return messages if index else [chunk(bytes(len(m) - 4)) for m in messages]


def lose_end(_index: int, messages: list[bytes]) -> list[bytes]:
    return messages[:-1]


def say_more(_index: int, messages: list[bytes]) -> list[bytes]:
    return [chunk(b"x" * limits.MAX_PIECE_CHUNK_BYTES)] * 99


def say_nothing(_index: int, _messages: list[bytes]) -> list[bytes]:
    return [chunk(b"")]


def say_garbage(_index: int, _messages: list[bytes]) -> list[bytes]:
    return [b"\xff" * 9]


@pytest.mark.parametrize(
    "lie",
    [flip, lose_end, say_more, say_nothing, say_garbage],
    ids=lambda lie: lie.__name__,
)
async def test_a_donor_that_lies_in_pieces_is_blamed_and_asked_no_more(
    lie: Callable[[int, list[bytes]], list[bytes]],
):
    scene = Scene()
    await scene.liar("liar", chunks=lie)
    await scene.donor("honest", STATE)
    assert are_equal(await scene.download(), STATE)
    assert {peer for peer, _ in scene.blamed} == {node("liar")}
    asked = [piece for target, piece, _ in scene.requests if target == node("liar")]
    assert 1 <= len(asked) <= PIECES_PER_DONOR


async def test_one_bad_piece_of_one_donor_costs_one_piece():
    scene = Scene()
    for k in range(2):
        await scene.donor(f"honest {k}", BIG)
    scene.addresses.reverse()
    bad: list[int] = []

    def first_is_bad(index: int, messages: list[bytes]) -> list[bytes]:
        bad.append(index)
        return flip(index, messages) if len(bad) == 1 else messages

    await scene.liar("liar", BIG, chunks=first_is_bad)
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    assert are_equal(await downloader.fetch(BIG.digest, lambda: scene.addresses), BIG)
    (peer, error), *_ = scene.blamed
    assert peer == node("liar")
    assert isinstance(error, WrongPayload)
    assert downloader.bytes_fetched <= 8 * 2_000_000 + PIECES_PER_DONOR * 2**20


async def test_a_donor_that_refuses_is_not_blamed_for_it():
    scene = Scene()
    rpc = scene.network.rpc(node("refuser"))

    async def refuse(_caller: NodeId, _data: bytes) -> AsyncIterator[bytes]:
        raise ProtocolViolation("not for you")
        yield b""

    rpc.serve_stream(PIECE, refuse)
    await rpc.start()
    scene.addresses.append(rpc.address)
    await scene.donor("honest", STATE)
    assert are_equal(await scene.download(), STATE)
    assert not scene.blamed


# -- donors that fail ----------------------------------------------------------------


async def test_a_donor_that_dies_in_the_middle_costs_nothing_twice():
    scene = Scene()
    for k in range(3):
        await scene.donor(f"donor {k}", BIG)
    num_messages = 0

    def kill_in_the_middle(passage: Passage) -> bool:
        nonlocal num_messages
        if passage.source == node("donor 1") and passage.method == PIECE:
            num_messages += 1
            if num_messages == 40:
                scene.network.kill(node("donor 1"))
        return False

    scene.network.drop(when=kill_in_the_middle)
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    assert are_equal(await downloader.fetch(BIG.digest, lambda: scene.addresses), BIG)
    assert num_messages >= 40
    assert downloader.bytes_fetched <= 1.01 * 8 * 2_000_000
    assert any(offset for _, _, offset in scene.requests)
    assert not scene.blamed


async def test_a_donor_that_stalls_is_left_for_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(piece_crew, "STALL_S", 0.05)
    scene = Scene()
    rpc = scene.network.rpc(node("lame"))

    async def stall(_caller: NodeId, _data: bytes) -> AsyncIterator[bytes]:
        await asyncio.get_running_loop().create_future()
        yield b""

    rpc.serve_stream(PIECE, stall)
    await rpc.start()
    scene.addresses.append(rpc.address)
    await scene.donor("honest", STATE)
    assert are_equal(await scene.download(), STATE)
    assert any(target == node("lame") for target, _, _ in scene.requests)
    assert not scene.blamed


async def test_one_fast_donor_takes_over_from_slow_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neuroswarm.transfer.piece_plan.TAKEOVER_S", 0.05)
    monkeypatch.setattr("neuroswarm.transfer.piece_plan.RATE_AFTER_S", 0.05)
    scene = Scene()
    for name in ("slow 0", "slow 1", "fast"):
        await scene.donor(name, BIG)
    faults = [
        scene.network.delay(1.0, source=node(name), method=PIECE) for name in ("slow 0", "slow 1")
    ]
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    began_at = scene.clock.monotonic()
    assert are_equal(await downloader.fetch(BIG.digest, lambda: scene.addresses), BIG)
    # A piece of a slow one would take 32 messages of half a second.
    assert scene.clock.monotonic() - began_at < 8
    assert all(fault.fired for fault in faults)
    assert downloader.bytes_fetched <= 1.2 * 8 * 2_000_000
    asked = [piece for _, piece, _ in scene.requests]
    assert max(map(asked.count, asked)) <= 2
    assert scene.bytes_by[node("fast")] > 0.9 * 8 * 2_000_000


async def test_a_liar_cannot_spoil_the_pieces_of_others_for_long(
    monkeypatch: pytest.MonkeyPatch,
):
    """It begins pieces wrongly and stops: whoever goes on with them is not blamed."""
    monkeypatch.setattr(piece_crew, "STALL_S", 0.05)
    scene = Scene()
    rpc = scene.network.rpc(node("spoiler"))

    async def spoil(_caller: NodeId, _data: bytes) -> AsyncIterator[bytes]:
        yield chunk(b"wrong")
        await asyncio.get_running_loop().create_future()

    rpc.serve_stream(PIECE, spoil)
    await rpc.start()
    scene.addresses.append(rpc.address)
    await scene.donor("honest", STATE)
    assert are_equal(await scene.download(), STATE)
    assert not scene.blamed
    assert any(offset == len(b"wrong") for _, _, offset in scene.requests)


async def test_a_download_of_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(piece_crew, "STALL_S", 0.1)
    monkeypatch.setattr(piece_crew, "GIVE_UP_S", 1.0)
    monkeypatch.setattr("neuroswarm.transfer.donor_pool.MAX_REST_S", 0.1)
    scene = Scene()
    lame = await scene.liar("lame")
    num_given = 0

    async def dribble(_caller: NodeId, _data: bytes) -> AsyncIterator[bytes]:
        nonlocal num_given
        while True:
            num_given += 1
            yield chunk(b"x")
            await scene.clock.sleep(0.01)

    lame._stream[PIECE] = dribble
    with pytest.raises(PeerUnreachable, match="next to nothing"):
        async with asyncio.timeout(5):
            await scene.download()
    assert num_given > 0
    offsets = {offset for _, _, offset in scene.requests}
    assert len(offsets) > 1, "it was left, and asked again"


async def test_a_download_that_nobody_serves_any_more_is_given_up():
    scene = Scene()
    held = [STATE]
    donor = await scene.donor("donor", held=lambda: tuple(held))

    def lose_it(passage: Passage) -> bool:
        if passage.method == PIECE and passage.is_reply and len(scene.requests) == 2:
            held.clear()
            donor._pins.clear()
        return False

    scene.network.drop(when=lose_it)
    with pytest.raises(PeerUnreachable, match="gone"):
        await scene.download()


# -- restarts of the joiner ------------------------------------------------------------


async def stop_after(scene: Scene, num_pieces: int) -> None:
    """Download until so many pieces were asked for, and be killed then."""
    asked_enough = asyncio.Event()

    def count(passage: Passage) -> bool:
        if len(scene.requests) >= num_pieces:
            asked_enough.set()
        return False

    fault = scene.network.drop(when=count)
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    work = asyncio.ensure_future(downloader.fetch(BIG.digest, lambda: scene.addresses))
    await asked_enough.wait()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    scene.network.remove(fault)


async def test_a_restarted_joiner_goes_on_with_what_it_has(tmp_path: Path):
    scene = Scene(folder=tmp_path / "incoming")
    await scene.donor("donor", BIG)
    await stop_after(scene, 10)
    done = 10 - PIECES_PER_DONOR
    before = len(scene.requests)
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    assert await downloader.unfinished(lambda: scene.addresses) == BIG.digest
    assert are_equal(await downloader.fetch(BIG.digest, lambda: scene.addresses), BIG)
    assert len(scene.requests) - before <= 16 - done
    assert downloader.bytes_fetched <= 8 * 2_000_000 - done * 2**20
    await downloader.forget(BIG.digest)
    assert not names_in(tmp_path / "incoming")


async def test_what_the_disk_spoiled_is_fetched_again(tmp_path: Path):
    scene = Scene(folder=tmp_path)
    await scene.donor("donor", BIG)
    await stop_after(scene, 14)
    path = tmp_path / BIG.digest.hex()
    with path.open("r+b") as file:
        file.seek(3 * 2**20 + 5)
        file.write(b"spoiled")
    before = len(scene.requests)
    downloader = await scene.downloader(shape=(("only", 2_000_000),))
    assert are_equal(await downloader.fetch(BIG.digest, lambda: scene.addresses), BIG)
    assert 3 in [piece for _, piece, _ in scene.requests[before:]]
    assert len(scene.requests) - before <= 16 - 14 + PIECES_PER_DONOR + 1


async def test_an_unfinished_state_that_nobody_serves_is_removed(tmp_path: Path):
    scene = Scene(folder=tmp_path)
    await scene.donor("donor", STATE)
    (tmp_path / BIG.digest.hex()).write_bytes(b"old")
    (tmp_path / "not a digest").write_bytes(b"somebody's")
    downloader = await scene.downloader()
    assert await downloader.unfinished(lambda: scene.addresses) is None
    assert names_in(tmp_path) == ["not a digest"]


async def test_few_unfinished_states_are_kept(tmp_path: Path):
    for k in range(5):
        (tmp_path / f"{k}".rjust(64, "0")).write_bytes(b"old")
    scene = Scene(folder=tmp_path)
    await scene.donor("donor", STATE)
    await scene.download()
    assert len(names_in(tmp_path)) == MAX_INCOMING
    assert (tmp_path / STATE.digest.hex()).exists()


async def test_without_a_disk_the_download_is_kept_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"no folder")
    scene = Scene(folder=blocked)
    await scene.donor("donor", STATE)
    assert are_equal(await scene.download(), STATE)
    assert caplog.text.count("memory alone") == 1


async def test_a_disk_that_fills_up_does_not_stop_the_download(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def full(_file: int, _data: object, _at: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuroswarm.transfer.incoming._write", full)
    scene = Scene(folder=tmp_path)
    await scene.donor("donor", STATE)
    assert are_equal(await scene.download(), STATE)
    assert caplog.text.count("No space left") == 1
    assert not names_in(tmp_path)


# -- bounds of donors ----------------------------------------------------------------


async def test_a_busy_donor_sends_joiners_elsewhere():
    scene = Scene()
    await scene.donor("busy", STATE, max_state_downloads=1)
    first, second = await scene.downloader("first"), await scene.downloader("second")
    assert await first.fetch(STATE.digest, lambda: scene.addresses[:1])
    await scene.donor("free", STATE)
    assert are_equal(await second.fetch(STATE.digest, lambda: scene.addresses), STATE)
    assert scene.bytes_by[node("free")] == LAYOUT.num_bytes
    assert not scene.blamed


async def test_a_joiner_waits_for_a_donor_that_is_busy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neuroswarm.transfer.donor_pool.BUSY_S", (0.01, 0.02))
    monkeypatch.setattr("neuroswarm.transfer.upload_bounds.SLOT_S", 0.2)
    scene = Scene()
    await scene.donor("busy", STATE, max_state_downloads=1)
    first, second = await scene.downloader("first"), await scene.downloader("second")
    assert await first.fetch(STATE.digest, lambda: scene.addresses)
    num_requests = len(scene.requests)
    assert are_equal(await second.fetch(STATE.digest, lambda: scene.addresses), STATE)
    assert len(scene.requests) > num_requests + LAYOUT.num_pieces


async def ask_piece(
    scene: Scene, digest: bytes, piece: int = 0, *, name: str = "asker"
) -> state_pb2.PieceChunk:
    node_id = node(name)
    asker = scene.network.find_rpc(node_id) or scene.network.rpc(node_id)
    if asker.state.name == "NEW":
        await asker.start()
    request = state_pb2.PieceRequest(digest=digest, piece=piece).SerializeToString()
    stream = asker.stream(scene.addresses[0], PIECE, request, timeout_s=5)
    first, *_ = [message async for message in stream]
    return state_pb2.PieceChunk.FromString(first)


async def test_a_state_that_is_downloaded_outlives_its_retention():
    clock, held = FakeClock(), [STATE]
    scene = Scene()
    donor = await scene.donor("donor", held=lambda: tuple(held), clock=clock)
    assert (await ask_piece(scene, STATE.digest)).data
    held[:] = [make_state(11, seed=3)]
    await clock.advance(PIN_S - 1)
    assert donor.num_pinned == 1
    assert (await ask_piece(scene, STATE.digest)).data
    await clock.advance(PIN_S - 1)
    assert (await ask_piece(scene, STATE.digest)).data
    await clock.advance(PIN_S)
    assert (await ask_piece(scene, STATE.digest)).refusal == state_pb2.REFUSAL_GONE
    assert donor.num_pinned == 0


async def test_a_state_is_let_go_of_without_anybody_asking():
    clock, held = FakeClock(), [STATE]
    scene = Scene()
    donor = await scene.donor("donor", held=lambda: tuple(held), clock=clock)
    async with donor:
        await ask_piece(scene, STATE.digest)
        held.clear()
        await clock.advance(1)
        assert donor._pins.digests() == [STATE.digest]
        await clock.advance(1.5 * PIN_S)
        assert not donor._pins.digests()


async def test_few_states_are_held_on_to_the_first_ones():
    clock = FakeClock()
    states = [make_state(k, seed=k, shape=(("only", 3),)) for k in range(4)]
    held = list(states)
    scene = Scene()
    donor = await scene.donor("donor", held=lambda: tuple(held), clock=clock)
    for k, state in enumerate(states):
        await ask_piece(scene, state.digest, name=f"asker {k}")
        await clock.advance(1)
    held.clear()
    answers = [
        (await ask_piece(scene, state.digest, name=f"asker {k}")).refusal
        for k, state in enumerate(states)
    ]
    gone = state_pb2.REFUSAL_GONE
    assert answers == [0, 0, gone, gone]
    assert donor.num_pinned == 2


async def test_who_asks_for_many_states_ends_no_download_of_another():
    clock = FakeClock()
    states = [make_state(k, seed=k, shape=(("only", 3),)) for k in range(5)]
    held = states[:1]
    scene = Scene()
    donor = await scene.donor("donor", held=lambda: tuple(held), clock=clock)
    await ask_piece(scene, states[0].digest, name="honest")
    for before, state in itertools.pairwise(states):
        held[:] = [state]
        await clock.advance(SLOT_S + 1)
        for wanted in (before, state):
            await ask_piece(scene, wanted.digest, name="greedy")
        assert (await ask_piece(scene, states[0].digest, name="honest")).data
    held.clear()
    assert donor.num_pinned == 2


async def test_a_donor_refuses_pieces_that_do_not_exist():
    scene = Scene()
    await scene.donor("donor", STATE)
    with pytest.raises(ProtocolViolation, match="piece 99"):
        await ask_piece(scene, STATE.digest, 99)


async def test_all_joiners_share_the_rate_that_a_donor_allows():
    clock = FakeClock()
    state = make_state(shape=(("only", 131_072),))
    scene = Scene()
    donor = await scene.donor("donor", state, clock=clock, max_state_upload_mbit=8.0)
    rpcs = [scene.network.rpc(Speaker(name).node_id) for name in ("first", "second")]
    for rpc in rpcs:
        await rpc.start()
    request = state_pb2.PieceRequest(digest=state.digest).SerializeToString()

    async def fetch(k: int) -> None:
        async for _ in rpcs[k].stream(scene.addresses[0], PIECE, request, timeout_s=50):
            pass

    work = asyncio.gather(fetch(0), fetch(1))
    began_at = clock.monotonic()
    while not work.done():
        await clock.advance(0.05)
        await asyncio.to_thread(int)
    assert donor.bytes_given == pytest.approx(2 * 2**20, rel=0.01)
    assert clock.monotonic() - began_at == pytest.approx(2 * 2**20 / 1e6, rel=0.15)


async def test_where_a_manifest_is_lost_the_next_donor_is_asked_soon(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(download, "QUICK_TIMEOUT_S", 0.05)
    scene = Scene()
    for name in ("deaf", "deaf too", "donor"):
        await scene.donor(name, STATE)
    lost = [
        scene.network.drop(target=address.node_id, method=MANIFEST)
        for address in scene.addresses[:2]
    ]
    async with asyncio.timeout(download.ASK_TIMEOUT_S):
        assert are_equal(await scene.download(), STATE)
    assert [fault.fired for fault in lost] == [1, 1]
    assert not scene.blamed


async def test_who_hangs_up_while_it_waits_takes_nothing_of_the_rate():
    clock = FakeClock()
    pace = Pace(1000.0, clock)
    assert await pace.take(1000) == 0.0
    for _ in range(50):
        waiting = asyncio.ensure_future(pace.take(1000))
        await clock.advance(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    honest = [asyncio.ensure_future(pace.take(1000)) for _ in range(2)]
    await clock.advance(1.0)
    assert [one.done() for one in honest] == [True, False]
    await clock.advance(1.0)
    assert [await one for one in honest] == [pytest.approx(1.0), pytest.approx(2.0)]


class Corridor:
    """Who tries to get one of two places."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.places = Places(2)
        self.stack = contextlib.ExitStack()

    def ask(self, name: str) -> Place | None:
        return self.stack.enter_context(self.places.taken(node(name), self.clock))


async def test_a_place_that_is_not_used_goes_to_somebody_else():
    corridor = Corridor()
    with corridor.stack:
        idle, busy = corridor.ask("idle"), corridor.ask("busy")
        assert idle is not None
        assert busy is not None
        for _ in range(5):
            await corridor.clock.advance(2.0)
            with corridor.places.taken(node("idle"), corridor.clock):
                pass  # asks and hangs up, which is no use of a place
            idle.took(1000, corridor.clock.monotonic())
            busy.took(32 * 1024, corridor.clock.monotonic())
        assert corridor.ask("other") is not None
        assert [idle.is_lost, busy.is_lost] == [True, False]
        assert corridor.ask("idle") is None
        corridor.clock.stop(REST_S)
        assert corridor.ask("idle") is not None, "it has rested, and nobody else took anything"


async def test_a_slow_donor_is_not_held_against_a_downloader():
    corridor = Corridor()
    with corridor.stack:
        place = corridor.ask("honest")
        assert place is not None
        await corridor.clock.advance(30.0)
        place.was_held_up(30.0, corridor.clock.monotonic())
        assert corridor.ask("honest") is place


async def test_who_was_served_longest_makes_room_after_a_while():
    corridor = Corridor()
    with corridor.stack:
        first, second = corridor.ask("first"), corridor.ask("second")
        assert first is not None
        assert second is not None
        began_at = corridor.clock.monotonic()
        while corridor.clock.monotonic() - began_at < LONGEST_S:
            assert corridor.ask("late") is None
            await corridor.clock.advance(5.0)
            for place in (first, second):
                place.took(32 * 1024, corridor.clock.monotonic())
        assert corridor.ask("late") is not None
        assert [first.is_lost, second.is_lost] == [True, False]
