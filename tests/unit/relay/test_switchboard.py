from __future__ import annotations

import pytest

from neuroswarm.errors import PeerError, ProtocolViolation
from neuroswarm.relay.switchboard import Line, RelayBounds, Switchboard
from neuroswarm.values import NodeId
from neuroswarm.wire.limits import MAX_FRAME_DATA_BYTES, PIPE_WINDOW_BYTES
from neuroswarm.wire.relaying import Attachment, Frame

ANNA, BERT, CARL = (NodeId(bytes([n]) * 20) for n in (1, 2, 3))
CHUNK = bytes(MAX_FRAME_DATA_BYTES)
CHUNKS_A_WINDOW = PIPE_WINDOW_BYTES // MAX_FRAME_DATA_BYTES


def attach(board: Switchboard, node: NodeId, session: bytes = b"session1") -> Line:
    return board.attach(node, Attachment(session, takes_pipes=True), lambda: None)


def taken(line: Line) -> list[Frame]:
    """All that waits for an attached node."""
    frames: list[Frame] = []
    while batch := line.queue.take_batch():
        frames += batch
    return frames


@pytest.fixture
def board() -> Switchboard:
    return Switchboard(RelayBounds(max_lines=3, max_pipes=8, max_pipes_per_opener=4))


def test_bytes_go_to_the_other_end_and_back(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT, data=b"hello")])
    assert taken(bert) == [Frame(2, open=ANNA, data=b"hello")]
    board.take(bert, [Frame(2, credit=5, data=b"hi"), Frame(2, data=b"!")])
    assert taken(anna) == [Frame(1, credit=5, data=b"hi!")]
    board.take(anna, [Frame(1, data=b"bye", is_end=True)])
    assert taken(bert) == [Frame(2, data=b"bye", is_end=True)]
    assert taken(anna) == []
    assert board.num_pipes == 0
    assert board.num_bytes == 11


def test_who_is_not_attached_or_takes_no_pipes_is_not_reached(board):
    anna = attach(board, ANNA)
    board.take(anna, [Frame(1, open=BERT, data=b"hello")])
    assert taken(anna) == [Frame(1, is_end=True)]
    board.attach(BERT, Attachment(b"session1", takes_pipes=False), lambda: None)
    board.take(anna, [Frame(3, open=BERT), Frame(5, open=ANNA)])
    assert taken(anna) == [Frame(3, is_end=True), Frame(5, is_end=True)]
    assert board.num_refused == 3
    assert board.num_pipes == 0


def test_more_than_the_window_ends_the_pipe(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT)] + [Frame(1, data=CHUNK)] * CHUNKS_A_WINDOW)
    assert bert.queue.num_bytes == PIPE_WINDOW_BYTES
    assert board.num_pipes == 1
    board.take(anna, [Frame(1, data=b"x")])
    assert board.num_cut == 1
    assert bert.queue.num_bytes == PIPE_WINDOW_BYTES, "no more than a window is ever held"
    assert taken(anna) == [Frame(1, is_end=True)]
    assert taken(bert)[-1].is_end
    assert board.num_pipes == 0


def test_credit_opens_the_window_again_but_not_beyond_it(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT)] + [Frame(1, data=CHUNK)] * CHUNKS_A_WINDOW)
    taken(bert)
    board.take(bert, [Frame(2, credit=len(CHUNK))])
    board.take(anna, [Frame(1, data=CHUNK)])
    assert board.num_cut == 0
    board.take(bert, [Frame(2, credit=PIPE_WINDOW_BYTES), Frame(2, credit=1)])
    assert board.num_cut == 1, "credit for what never came"


def test_an_opener_has_few_pipes_and_ended_ones_count_until_their_bytes_are_gone(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    for number in (1, 3, 5, 7):
        board.take(anna, [Frame(number, open=BERT, data=CHUNK, is_end=True)])
    board.take(anna, [Frame(9, open=BERT)])
    assert board.num_refused == 1
    assert bert.queue.num_bytes == 4 * len(CHUNK)
    taken(bert)
    board.take(anna, [Frame(11, open=BERT)])
    assert board.num_refused == 1
    assert board.num_pipes == 1


def test_all_pipes_together_are_bounded(board):
    lines = [attach(board, node) for node in (ANNA, BERT, CARL)]
    for line, target in zip(lines, (BERT, CARL, ANNA), strict=True):
        board.take(line, [Frame(n, open=target) for n in (1, 3, 5, 7)])
    assert board.num_pipes == 8
    assert board.num_refused == 4


def test_what_is_held_for_all_is_bounded():
    board = Switchboard(RelayBounds(max_buffered_bytes=len(CHUNK)))
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT, data=CHUNK), Frame(3, open=BERT, data=b"x")])
    assert board.num_cut == 1
    assert board.num_buffered == len(CHUNK)
    assert taken(anna) == [Frame(3, is_end=True)]
    assert taken(bert) == [Frame(2, open=ANNA, data=CHUNK), Frame(4, open=ANNA, is_end=True)]


def test_attached_nodes_are_bounded(board):
    for node in (ANNA, BERT, CARL):
        attach(board, node)
    with pytest.raises(PeerError, match=r"too many nodes attached here \(limit 3\)"):
        attach(board, NodeId(bytes(20)))
    attach(board, ANNA, b"session2")


def test_pipes_end_with_either_node(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT, data=b"x")])
    board.take(bert, [Frame(2, data=b"y")])
    board.detach(bert)
    assert taken(anna) == [Frame(1, data=b"y", is_end=True)]
    assert board.num_pipes == 0
    board.take(anna, [Frame(1, data=b"late")])
    bert = attach(board, BERT)
    board.take(anna, [Frame(3, open=BERT, data=b"x")])
    anna = attach(board, ANNA, b"session2")
    assert [frame.is_end for frame in taken(bert)] == [True]
    assert taken(anna) == []
    assert board.num_pipes == 0


@pytest.mark.parametrize("number", [2, 1])
def test_pipes_are_numbered_oddly_and_upwards(board, number):
    anna = attach(board, ANNA)
    board.take(anna, [Frame(1, open=BERT)])
    with pytest.raises(ProtocolViolation, match="pipe number"):
        board.take(anna, [Frame(number, open=BERT)])


def test_a_node_that_opens_pipes_and_takes_nothing_is_refused(board):
    anna = attach(board, ANNA)
    with pytest.raises(PeerError, match="takes nothing"):
        board.take(anna, [Frame(n, open=BERT) for n in range(1, 2001, 2)])
    assert len(anna.queue) < 600


def test_pipes_get_their_turns(board):
    anna, bert = attach(board, ANNA), attach(board, BERT)
    board.take(anna, [Frame(1, open=BERT)] + [Frame(1, data=CHUNK)] * 3)
    board.take(anna, [Frame(3, open=BERT, data=b"short")])
    assert [frame.pipe for frame in taken(bert)] == [2, 4, 2, 2]
