import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_node import ME, SmallNode, cut, flip, full_disk, newest, same

from neuroswarm.checkpoint.manifest import seal
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import MANIFEST, REASON, TENSORS, CheckpointStore
from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError


def inner(folder: Path) -> list[Path]:
    """Inner checkpoints, also damaged ones."""
    return sorted(folder.glob("inner-*"))


def outer(folder: Path) -> list[Path]:
    return sorted(folder.glob("outer-*.safetensors"))


def test_a_restarted_node_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path):
    whole = SmallNode()
    whole.round()
    whole.round(is_agreed=False)
    whole.trainer.step()
    CheckpointStore(tmp_path, 5).save(whole.snapshot())
    for is_agreed in (True, False, True):
        whole.round(is_agreed=is_agreed)
    restarted = SmallNode(seed=99)
    restarted.restore(newest(CheckpointStore(tmp_path, 5).load_latest()))
    assert not same(restarted.snapshot(), whole.snapshot())
    for is_agreed in (True, False, True):
        restarted.round(is_agreed=is_agreed)
    assert same(restarted.snapshot(), whole.snapshot())


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path):
    assert CheckpointStore(tmp_path / "new", 5).load_latest() is None


def test_the_newest_is_loaded_and_only_so_many_are_kept(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 2), SmallNode()
    saved = []
    for _ in range(4):
        node.round(1)
        saved.append(store.save(node.snapshot()))
    assert store.paths() == saved[2:]
    assert same(newest(CheckpointStore(tmp_path, 2).load_latest()), node.snapshot())
    assert inner(tmp_path) == saved[2:]
    assert len(outer(tmp_path)) == 2
    node.round(1)
    assert CheckpointStore(tmp_path, 2).save(node.snapshot()) > saved[-1]


def test_a_state_of_an_earlier_round_that_is_saved_later_counts_as_newer(tmp_path: Path):
    """A node that moved to another lineage may be at a smaller round."""
    store, ahead, behind = CheckpointStore(tmp_path, 3), SmallNode(), SmallNode()
    ahead.round(1)
    ahead.round(1)
    store.save(ahead.snapshot())
    store.save(behind.snapshot())
    assert newest(store.load_latest()).outer.round == 0


DAMAGE: dict[str, Callable[[Path], object]] = {
    "header byte": lambda p: flip(p / TENSORS, 0.001),
    "tensor byte": lambda p: flip(p / TENSORS, 0.7),
    "last byte": lambda p: flip(p / TENSORS, 1),
    "tensors cut": lambda p: cut(p / TENSORS),
    "tensors empty": lambda p: (p / TENSORS).write_bytes(b""),
    "tensors gone": lambda p: (p / TENSORS).unlink(),
    "manifest gone": lambda p: (p / MANIFEST).unlink(),
    "manifest cut": lambda p: cut(p / MANIFEST),
    "manifest empty": lambda p: (p / MANIFEST).write_bytes(b""),
    "manifest of another kind": lambda p: (p / MANIFEST).write_text("[1]"),
    "manifest deep": lambda p: (p / MANIFEST).write_text("[" * 200_000),
    "manifest binary": lambda p: (p / MANIFEST).write_bytes(b"\xff\xfe\x00"),
    "folder empty": lambda p: (shutil.rmtree(p), p.mkdir()),
    "tensors a folder": lambda p: ((p / TENSORS).unlink(), (p / TENSORS).mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_instead_of_a_damaged_checkpoint_the_one_before_is_used(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    node.round(1)
    before = node.snapshot()
    good = store.save(before)
    node.round(1)
    bad = store.save(node.snapshot())
    damage(bad)
    with caplog.at_level(logging.WARNING):
        found = CheckpointStore(tmp_path, 3).load_latest()
    assert found is not None
    assert found.snapshot is not None
    assert same(found.snapshot, before)
    assert found.outer.digest == node.outer.digest, "the newer outer state is not thrown away"
    aside = bad.with_name(bad.name + ".damaged")
    assert inner(tmp_path) == [good, aside]
    reason = (aside / REASON).read_text().strip()
    assert reason
    assert reason in caplog.text


def test_every_byte_of_the_manifest_counts(tmp_path: Path):
    """A flipped bit either changes nothing of what is read, or is noticed."""
    store, node = CheckpointStore(tmp_path, 1), SmallNode()
    node.round(1)
    path = store.save(node.snapshot())
    whole = (path / MANIFEST).read_bytes()
    backup = tmp_path / "backup"
    shutil.copytree(path, backup)
    noticed = 0
    for at in range(0, len(whole), 37):
        data = bytearray(whole)
        data[at] ^= 0x01
        (path / MANIFEST).write_bytes(data)
        found = store.load_latest()
        assert found is not None
        if found.snapshot is None:
            noticed += 1
            shutil.rmtree(path.with_name(path.name + ".damaged"))
            shutil.copytree(backup, path)
        else:
            assert same(found.snapshot, node.snapshot())
    assert noticed > 0.5 * len(whole) / 37


def test_a_consistent_manifest_that_names_another_outer_state_is_refused(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 1), SmallNode()
    node.round(1)
    path = store.save(node.snapshot())
    body = json.loads((path / MANIFEST).read_text())["body"]
    (path / MANIFEST).write_text(seal({**body, "outer": "00" * 32}))
    found = store.load_latest()
    assert found is not None
    assert found.snapshot is None
    assert found.outer.digest == node.outer.digest
    aside = path.with_name(path.name + ".damaged")
    assert "outer state 00000000 is not there" in (aside / REASON).read_text()


@pytest.mark.parametrize("at", [0.001, 0.1, 0.5, 1])
def test_without_its_outer_state_a_checkpoint_is_not_whole(tmp_path: Path, at: float):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    node.round(1)
    before = node.snapshot()
    store.save(before)
    node.round(1)
    bad = store.save(node.snapshot())
    damaged = outer(tmp_path)[-1]
    flip(damaged, at)
    assert same(newest(CheckpointStore(tmp_path, 3).load_latest()), before)
    aside = damaged.with_name(damaged.name + ".damaged")
    assert aside.exists()
    assert (tmp_path / f"{aside.name}.txt").read_text().strip()
    assert "outer state" in (tmp_path / f"{bad.name}.damaged" / REASON).read_text()


def test_an_outer_state_without_a_checkpoint_is_still_of_use(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    path = store.save(node.snapshot())
    node.round(1)
    store.save_outer(node.outer, {"history": 1})
    flip(path / TENSORS, 0.5)
    found = CheckpointStore(tmp_path, 3).load_latest()
    assert found is not None
    assert found.snapshot is None
    assert found.outer.digest == node.outer.digest
    assert found.meta == {"history": 1}


def test_a_newer_outer_state_and_the_work_that_it_moves(tmp_path: Path):
    """Power fails between the two files of a round: work goes on from both of them."""
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    node.round(3, is_agreed=False)
    store.save(node.snapshot())
    moved = advance_alone(node)
    store.save_outer(moved, {"history": 2, "name": "outer"})
    found = CheckpointStore(tmp_path, 3).load_latest()
    assert found is not None
    assert found.snapshot is not None
    assert found.meta == {"history": 2, "seconds": 1.5, "name": "alice"}
    restarted = SmallNode(seed=99)
    restarted.restore(found.snapshot)
    restarted.move(found.outer)
    node.move(moved)
    assert same(restarted.snapshot(), node.snapshot())


@pytest.mark.parametrize(
    ("is_alone", "rounds", "expected"),
    [(True, 1, 1), (False, 1, 2), (True, 3, 1), (True, 4, 5), (False, 4, 5)],
)
def test_a_lone_node_starts_where_it_comes_to_its_newest_state_again(
    tmp_path: Path, is_alone: bool, rounds: int, expected: int
):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    node.round()
    store.save(node.snapshot())
    for _ in range(rounds):
        node.round()
        store.save_outer(node.outer, {"is_alone": is_alone})
    kept = CheckpointStore(tmp_path, 3).load_latest()
    assert kept is not None
    assert kept.outer.round == expected


def advance_alone(node: SmallNode) -> OuterState:
    return advance(node.outer, []).state


def test_an_outer_state_is_written_once(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 5), SmallNode()
    node.round(1)
    store.save_outer(node.outer, {})
    once = store.bytes_written
    assert 8 * node.outer.num_params < once < 8 * node.outer.num_params + 8000
    (file,) = outer(tmp_path)
    inode = file.stat().st_ino
    store.save_outer(node.outer, {})
    assert store.bytes_written == once
    for _ in range(3):
        node.trainer.step()
        store.save(node.snapshot())
    (file,) = outer(tmp_path)
    assert file.stat().st_ino == inode
    assert len(inner(tmp_path)) == 3


def test_a_state_that_the_node_comes_back_to_is_the_newest_again(tmp_path: Path):
    store, here, there = CheckpointStore(tmp_path, 5), SmallNode(), SmallNode()
    there.round(1)
    store.save_outer(here.outer, {})
    store.save_outer(there.outer, {})
    store.save_outer(here.outer, {})
    found = CheckpointStore(tmp_path, 5).load_latest()
    assert found is not None
    assert found.outer.digest == here.outer.digest


def test_kept_are_the_outer_states_that_checkpoints_name_and_the_newest(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 2), SmallNode()
    digests = []
    for has_work in (True, False, True, False, True, False, False):
        node.round(1)
        digests.append(node.outer.digest)
        if has_work:
            store.save(node.snapshot())
        else:
            store.save_outer(node.outer, {})
    kept = [digests[2], digests[4], digests[6]]
    assert store.outer_digests() == kept
    again = CheckpointStore(tmp_path, 2)
    node.trainer.step()
    again.save(node.snapshot())
    assert again.outer_digests() == kept[1:]


def test_when_all_are_damaged_there_is_none_and_all_are_kept(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    paths = [store.save(node.snapshot()) for _ in range(3)]
    for path in paths:
        flip(path / TENSORS, 0.5)
    flip(outer(tmp_path)[0], 0.5)
    assert store.load_latest() is None
    assert len(list(tmp_path.glob("*.damaged"))) == 4
    assert store.save(node.snapshot()) > paths[-1]
    assert store.load_latest() is not None


@pytest.mark.parametrize("config", [None, {"a": 1}])
def test_checkpoints_of_an_earlier_version_are_no_reason_to_start_anew(
    tmp_path: Path, config: dict[str, int] | None
):
    (tmp_path / "checkpoint-00000007").mkdir()
    store = CheckpointStore(tmp_path, 2, config=config)
    with pytest.raises(CheckpointError, match="--fresh"):
        store.load_latest()
    node = SmallNode()
    store.save(node.snapshot())
    assert same(newest(store.load_latest()), node.snapshot())


@pytest.mark.parametrize("limit", [0, 100, 20_000, 40_000, 60_000])
def test_a_full_disk_is_one_clear_error_and_damages_nothing(tmp_path: Path, limit: int):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    good = store.save(node.snapshot())
    node.round(1)
    with full_disk(limit), pytest.raises(CheckpointError, match="cannot write"):
        store.save(node.snapshot())
    assert inner(tmp_path) == [good]
    assert len(outer(tmp_path)) == (2 if limit > 8 * node.outer.num_params + 8000 else 1)
    assert len(list(tmp_path.iterdir())) == len(inner(tmp_path)) + len(outer(tmp_path))
    assert store.load_latest() is not None
    assert store.save(node.snapshot()) > good


def test_a_full_disk_at_the_manifest_leaves_no_half_checkpoint(tmp_path: Path):
    """The tensors fit, the manifest does not."""
    node = SmallNode()
    store = CheckpointStore(tmp_path, 3, config={"padding": "x" * 1_000_000})
    with full_disk(900_000), pytest.raises(CheckpointError, match="cannot write checkpoint"):
        store.save(node.snapshot())
    assert list(tmp_path.iterdir()) == outer(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot use .*file"):
        CheckpointStore(tmp_path / "file" / "checkpoints", 3)


def test_a_folder_that_somebody_deleted_is_made_again(tmp_path: Path):
    store, node = CheckpointStore(tmp_path / "checkpoints", 3), SmallNode()
    store.save(node.snapshot())
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(CheckpointError, match="cannot list"):
        store.load_latest()
    store.save(node.snapshot())
    assert same(newest(store.load_latest()), node.snapshot())


def test_a_folder_whose_place_is_gone_is_a_clear_error(tmp_path: Path):
    store = CheckpointStore(tmp_path / "disk" / "checkpoints", 3)
    shutil.rmtree(tmp_path / "disk")
    with pytest.raises(CheckpointError, match=r"cannot write checkpoints to .*No such file"):
        store.save(SmallNode().snapshot())


def test_what_a_killed_writer_left_is_no_checkpoint_and_goes_away(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 3), SmallNode()
    good = store.save(node.snapshot())
    shutil.copytree(good, tmp_path / ".tmp-inner-00000002")
    (tmp_path / ".tmp-outer-00000003").write_bytes(b"half")
    again = CheckpointStore(tmp_path, 3)
    assert sorted(tmp_path.iterdir()) == [good, *outer(tmp_path)]
    assert again.paths() == [good]


def test_tensors_that_share_memory_are_written_whole(tmp_path: Path):
    node = SmallNode()
    shared = torch.arange(6, dtype=torch.float32)
    snapshot = node.snapshot()
    odd = Snapshot(
        snapshot.outer,
        snapshot.local,
        snapshot.ledger,
        (
            {
                "a": shared,
                "b": shared,
                "c": shared[1:3],
                "d": shared.view(2, 3).t(),
                "e": torch.tensor(3, dtype=torch.int64),
                "f": torch.tensor([True, False, True]),
                "g": shared.to(torch.bfloat16),
                "h": torch.empty(0, 5),
            },
            {},
        ),
    )
    CheckpointStore(tmp_path, 1).save(odd)
    assert same(newest(CheckpointStore(tmp_path, 1).load_latest()), odd)


def test_the_manifest_shows_the_configuration(tmp_path: Path):
    store = CheckpointStore(tmp_path, 1, config={"training": {"lr": 0.002}})
    path = store.save(SmallNode().snapshot())
    body = json.loads((path / MANIFEST).read_text())["body"]
    assert body["config"] == {"training": {"lr": 0.002}}
    assert store.bytes_written >= (path / TENSORS).stat().st_size


def test_at_least_one_checkpoint_is_kept(tmp_path: Path):
    with pytest.raises(ValueError, match="max_checkpoints"):
        CheckpointStore(tmp_path, 0)


def test_the_applied_table_and_rules_come_back(tmp_path: Path):
    node = SmallNode()
    node.round(1)
    node.round(1)
    CheckpointStore(tmp_path, 1).save(node.snapshot())
    found = newest(CheckpointStore(tmp_path, 1).load_latest())
    restored: OuterState = found.outer
    assert restored.applied == node.outer.applied
    assert len(restored.applied[ME]) == 2
    assert restored.rules == node.outer.rules
    assert restored.architecture == node.outer.architecture
    assert found.meta == {"seconds": 1.5, "name": "alice"}
