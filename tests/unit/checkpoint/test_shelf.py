"""What is rarely needed lies in files without names, and comes back with the same bits or not."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import torch
from small_node import SmallNode

from neuroswarm.checkpoint.shelf import Shelf
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.checkpoint.stored import OpenFile, StoredTensors
from neuroswarm.clock import SystemClock
from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.pieces import PIECE_BYTES
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import CheckpointCorrupt, CheckpointError


def make_state(num_params: int = 300_000) -> OuterState:
    """One small fragment, and one of which a piece has parameters and momentum."""
    source = torch.Generator().manual_seed(1)
    fragments = tuple(
        FragmentState(name, torch.rand(n, generator=source), torch.rand(n, generator=source))
        for name, n in (("small", 7), ("large", num_params))
    )
    return OuterState(3, fragments, {}, Rules(), bytes(32))


def make_shelf(folder: Path, *, may_write: bool = True) -> tuple[Shelf, CheckpointStore]:
    store = CheckpointStore(folder / "checkpoints", 1)
    return Shelf(folder, store, may_write=may_write, clock=SystemClock()), store


def read_whole(state: OuterState) -> list[bytes]:
    """As a donor reads it, in pieces."""
    return [
        b"".join(
            map(bytes, fragment.read(start, min(start + PIECE_BYTES, 8 * fragment.num_params)))
        )
        for fragment in state.fragments
        for start in range(0, 8 * fragment.num_params, PIECE_BYTES)
    ]


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_a_state_that_is_put_away_has_the_same_bits(tmp_path: Path, is_checkpointed: bool):
    shelf, store = make_shelf(tmp_path)
    state, same = make_state(), make_state()
    if is_checkpointed:
        store.save_outer(state, {})
    shelf.put_state(state)
    assert not state.is_in_memory
    assert (shelf.bytes_written > 0) is not is_checkpointed
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"], "no file has a name"
    assert OuterState(3, state.fragments, {}, Rules(), bytes(32)).digest == same.digest
    for a, b in zip(state.fragments, same.fragments, strict=True):
        assert torch.equal(a.params, b.params)
        assert torch.equal(a.momentum, b.momentum)
    assert read_whole(state) == read_whole(same)
    assert advance(state, []).state.digest == advance(same, []).state.digest


def test_a_state_outlives_the_deletion_of_its_checkpoint(tmp_path: Path):
    shelf, store = make_shelf(tmp_path)
    state, same = make_state(), make_state()
    path = store.save_outer(state, {})
    shelf.put_state(state)
    path.unlink()
    assert torch.equal(state.params[1], same.params[1])


def test_a_state_that_was_damaged_on_the_disk_is_not_used(tmp_path: Path):
    shelf, store = make_shelf(tmp_path)
    state = make_state()
    path = store.save_outer(state, {})
    shelf.put_state(state)
    with path.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    with pytest.raises(CheckpointCorrupt, match="large: piece 2 has not the bytes"):
        _ = state.fragments[1].momentum
    assert len(state.fragments[1].params) == 300_000, "another piece"
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(CheckpointError, match="cut short"):
        state.fragments[1].read(0, 4096)


def test_only_the_same_values_take_a_states_place():
    state, other = make_state(), make_state(300_001)
    with pytest.raises(ValueError, match="other values"):
        state.put_away(other.fragments)
    assert state.is_in_memory


def test_tensors_come_back_one_at_a_time(tmp_path: Path):
    shelf, _ = make_shelf(tmp_path)
    tensors = [torch.arange(5.0), torch.empty(0), torch.rand(100_000)]
    stored = shelf.put_tensors(tensors)
    assert stored is not None
    for k, values in enumerate(tensors):
        assert torch.equal(stored[k], values)
    assert all(map(torch.equal, stored[1:], tensors[1:]))
    assert all(map(torch.equal, stored, tensors))
    with pytest.raises(IndexError):
        _ = stored[3]


def test_tensors_with_other_bytes_than_were_written_are_not_used(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    stored = StoredTensors(OpenFile(os.open(path, os.O_RDONLY)), [2], [bytes(32)])
    with pytest.raises(CheckpointCorrupt, match="not the bytes that were written"):
        _ = stored[0]


def test_bytes_come_back_in_parts(tmp_path: Path):
    shelf, _ = make_shelf(tmp_path)
    stored = shelf.put_bytes([b"first", b"", b"the second"])
    assert stored is not None
    assert [len(part) for part in stored] == [5, 0, 10]
    assert stored[2].read(4, 100) == b"second"
    assert [part.read(0, len(part)) for part in stored] == [b"first", b"", b"the second"]


def test_what_the_disk_refuses_stays_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    shelf, store = make_shelf(tmp_path)
    gone = Shelf(tmp_path / "gone", store, may_write=True, clock=SystemClock())
    state = make_state()
    with caplog.at_level(logging.WARNING):
        gone.put_state(state)
        assert gone.put_bytes([b"payload"]) is None
    assert state.is_in_memory
    (record,) = caplog.records
    assert record.getMessage() == (
        "cannot put 2400056 bytes away: No such file or directory "
        "(it stays in memory; training goes on)"
    )
    assert shelf.put_bytes([b"payload"]) is not None


def test_where_nothing_may_be_written_only_checkpoints_are_made_use_of(tmp_path: Path):
    shelf, store = make_shelf(tmp_path, may_write=False)
    written, unwritten = make_state(), make_state(1000)
    store.save_outer(written, {})
    shelf.put_state(written)
    shelf.put_state(unwritten)
    assert (written.is_in_memory, unwritten.is_in_memory) == (False, True)
    assert shelf.put_tensors([torch.ones(3)]) is None
    assert shelf.bytes_written == 0


def test_books_whose_publications_are_put_away_are_written_and_go_on_as_the_others(tmp_path: Path):
    shelf, store = make_shelf(tmp_path)
    kept, shelved = SmallNode(), SmallNode()
    for _ in range(3):
        kept.round()
        shelved.round()
        for publication in shelved.ledger.settled():
            deltas = shelf.put_tensors(publication.deltas)
            assert deltas is not None
            publication.put_away(deltas)
    assert not any(publication.is_in_memory for publication in shelved.ledger.publications)
    store.save(shelved.snapshot())
    found = store.load_latest()
    assert found is not None
    assert found.snapshot is not None
    again = SmallNode()
    again.restore(found.snapshot)
    for node in (kept, shelved, again):
        node.move(SmallNode().outer)  # all that was agreed comes back
    for node in (shelved, again):
        for a, b in zip(node.trainer.local(), kept.trainer.local(), strict=True):
            assert torch.equal(a, b)
        for a, b in zip(node.ledger.residual, kept.ledger.residual, strict=True):
            assert torch.equal(a, b)
