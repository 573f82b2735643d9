"""How states are cut into pieces, and the tree of hashes over them."""

import hashlib

import pytest
import torch

from neuroswarm.diloco.pieces import (
    PIECE_BYTES,
    Layout,
    count_pieces,
    cut,
    hash_pieces,
    make_leaf,
)
from neuroswarm.diloco.state import FragmentState

SIZES = (0, 1, PIECE_BYTES // 8, PIECE_BYTES // 8 + 1, PIECE_BYTES // 4, 400_001)


@pytest.mark.parametrize("size", SIZES)
def test_the_pieces_of_a_fragment_are_its_parameters_then_its_momentum(size: int):
    params, momentum = torch.randn(size), torch.randn(size)
    whole = params.numpy().tobytes() + momentum.numpy().tobytes()
    layout = Layout((("only", size),))
    spans = [layout.locate(piece) for piece in range(layout.num_pieces)]
    pieces = [b"".join(cut(params, momentum, span.start, span.end)) for span in spans]
    assert b"".join(pieces) == whole
    assert all(len(piece) == PIECE_BYTES for piece in pieces[:-1])
    assert hash_pieces(params, momentum) == b"".join(hashlib.sha256(p).digest() for p in pieces)
    assert layout.num_pieces == count_pieces(size)
    assert layout.num_bytes == len(whole)


def test_pieces_are_counted_over_all_fragments():
    shape = tuple((f"part {k}", size) for k, size in enumerate(SIZES))
    layout, at = Layout(shape), 0
    found = []
    for piece in range(layout.num_pieces):
        span = layout.locate(piece)
        assert span.at == at
        at += span.num_bytes
        found.append(span.fragment)
    assert at == layout.num_bytes == 8 * sum(SIZES)
    assert found == sorted(found)
    for k, size in enumerate(SIZES):
        assert [found[piece] for piece in layout.pieces_of(k)] == [k] * count_pieces(size)


@pytest.mark.parametrize("piece", [-1, 2])
def test_there_are_no_other_pieces(piece: int):
    with pytest.raises(IndexError, match=f"piece {piece} of a state of 2"):
        Layout((("a", 1), ("b", 1))).locate(piece)


def test_a_leaf_covers_name_size_and_every_piece():
    params, momentum = torch.randn(200_000), torch.randn(200_000)
    fragment = FragmentState("part", params, momentum)
    hashes = fragment.piece_hashes
    assert fragment.leaf == make_leaf("part", 200_000, hashes)
    others = {
        make_leaf("par", 200_000, hashes),
        make_leaf("part", 200_001, hashes),
        make_leaf("part", 200_000, hashes[:-1] + bytes([hashes[-1] ^ 1])),
        make_leaf("part", 200_000, hashes[32:64] + hashes[:32] + hashes[64:]),
    }
    assert len(others - {fragment.leaf}) == 4


def test_a_leaf_needs_as_many_hashes_as_there_are_pieces():
    with pytest.raises(ValueError, match="fragment part"):
        make_leaf("part", 200_000, bytes(32))


def test_the_leaf_of_the_simplest_fragment_never_changes():
    fragment = FragmentState("only", torch.tensor([1.0, -2.0]), torch.zeros(2))
    raw = bytes.fromhex("0000803f000000c0") + bytes(8)
    head = b"neuroswarm v1 fragment of pieces\0\x04\0\0\0only" + (2).to_bytes(8, "little")
    assert fragment.leaf == hashlib.sha256(head + hashlib.sha256(raw).digest()).digest()
