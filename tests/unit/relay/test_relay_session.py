from __future__ import annotations

import asyncio

import pytest

from neuroswarm.errors import PeerUnreachable
from neuroswarm.relay.session import MAX_PIPES_TAKEN, PipeEnd, Session
from neuroswarm.values import NodeId
from neuroswarm.wire.limits import MAX_FRAME_DATA_BYTES, PIPE_WINDOW_BYTES
from neuroswarm.wire.relaying import Frame

ANNA = NodeId(bytes([1]) * 20)


def sent(session: Session) -> list[Frame]:
    frames: list[Frame] = []
    while batch := session.queue.take_batch():
        frames += batch
    return frames


async def test_what_is_written_goes_out_and_what_comes_is_read():
    session = Session(on_pipe=None)
    pipe = session.open(ANNA)
    await pipe.write(b"hello")
    assert sent(session) == [Frame(1, open=ANNA, data=b"hello")]
    session.take([Frame(1, data=b"hi"), Frame(1, data=b"!", is_end=True)])
    assert await pipe.read() == b"hi!"
    assert await pipe.read() == b""
    with pytest.raises(PeerUnreachable, match="over"):
        await pipe.write(b"more")


async def test_a_writer_waits_for_the_reader():
    session = Session(on_pipe=None)
    pipe = session.open(ANNA)
    writing = asyncio.ensure_future(pipe.write(bytes(PIPE_WINDOW_BYTES + 1)))
    await asyncio.sleep(0)
    assert not writing.done()
    assert sum(len(frame.data) for frame in sent(session)) == PIPE_WINDOW_BYTES
    session.take([Frame(1, credit=1)])
    await asyncio.wait_for(writing, 5)
    assert sent(session) == [Frame(1, data=b"\0")]


async def test_credit_is_given_for_what_was_read():
    session = Session(on_pipe=None)
    pipe = session.open(ANNA)
    sent(session)
    chunk = bytes(MAX_FRAME_DATA_BYTES)
    session.take([Frame(1, data=chunk)] * 2)
    await pipe.read()
    assert sent(session) == [Frame(1, credit=2 * len(chunk))]


async def test_a_relay_that_sends_more_than_it_may_ends_the_pipe():
    session = Session(on_pipe=None)
    first, second = session.open(ANNA), session.open(ANNA)
    sent(session)
    session.take([Frame(1, data=bytes(PIPE_WINDOW_BYTES)), Frame(1, data=b"x")])
    session.take([Frame(1, data=bytes(PIPE_WINDOW_BYTES))])
    session.take([Frame(3, credit=1)])
    assert first.is_over
    assert second.is_over
    assert sent(session) == [Frame(1, is_end=True), Frame(3, is_end=True)]
    assert len(await first.read()) <= PIPE_WINDOW_BYTES + 1
    assert session.num_pipes == 0


async def test_pipes_of_others_are_taken_up_to_a_bound():
    taken: list[PipeEnd] = []
    session = Session(on_pipe=taken.append)
    session.take([Frame(2 * n, open=ANNA, data=b"x") for n in range(1, MAX_PIPES_TAKEN + 2)])
    session.take([Frame(2, open=ANNA), Frame(3, open=ANNA)])
    assert len(taken) == MAX_PIPES_TAKEN
    assert taken[0].peer == ANNA
    assert await taken[0].read() == b"x"
    assert sent(session) == [Frame(2 * MAX_PIPES_TAKEN + 2, is_end=True)]


async def test_no_pipes_are_taken_unless_wanted():
    session = Session(on_pipe=None)
    session.take([Frame(2, open=ANNA, data=b"x")])
    assert sent(session) == [Frame(2, is_end=True)]


async def test_all_pipes_end_with_the_relay():
    session = Session(on_pipe=None)
    pipe = session.open(ANNA)
    reading = asyncio.ensure_future(pipe.read())
    await asyncio.sleep(0)
    session.lose()
    assert await asyncio.wait_for(reading, 5) == b""
    with pytest.raises(PeerUnreachable, match="lost"):
        session.open(ANNA)
    assert session.num_pipes == 0


async def test_what_was_written_before_the_end_still_goes_out():
    session = Session(on_pipe=None)
    pipe = session.open(ANNA)
    await pipe.write(b"bye")
    pipe.close()
    assert sent(session) == [Frame(1, open=ANNA, data=b"bye", is_end=True)]
    assert session.num_pipes == 0
