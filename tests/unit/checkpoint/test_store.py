import json
import logging
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import MANIFEST, REASON, TENSORS, CheckpointStore
from neuroswarm.clock import SystemClock
from neuroswarm.codecs.registry import Int4
from neuroswarm.config.sections import TrainingConfig
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.diloco.ledger import Ledger, Publication
from neuroswarm.diloco.outer import AgreedContribution, advance
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import CheckpointError
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.trainer import Trainer
from neuroswarm.values import NodeId

ME = NodeId(b"m" * 20)
CODEC = Int4(256)
CONFIG = TrainingConfig(lr=1e-2, warmup_steps=3, batch_size=2, context=8, dim=16, num_heads=2)


class Node:
    """A trainer, its books and its outer state: what a node is between two steps."""

    def __init__(self, seed: int = 0) -> None:
        shape = TransformerConfig(dim=16, num_layers=1, num_heads=2, context=8)
        text = torch.arange(4000, dtype=torch.int64) % 97
        batches = WindowSampler(text, context=8, batch_size=2, seed=0, node_id=ME)
        self.trainer = Trainer(Transformer(shape, seed=seed), batches, CONFIG, clock=SystemClock())
        fragments = self.trainer.fragments
        named = zip(fragments.names, self.trainer.local(), strict=True)
        self.outer = genesis(Rules(), fragments.architecture, named)
        self.ledger = Ledger(fragments.sizes, CODEC)

    def round(self, num_steps: int = 3, *, is_agreed: bool = True) -> None:
        """Take steps, publish, and move to the next outer state."""
        for _ in range(num_steps):
            self.trainer.step()
        progress = self.trainer.progress
        self.trainer.mark_published()
        deltas, payloads = self.ledger.prepare(self.outer.params, self.trainer.local())
        name = self.outer.round.to_bytes(32, "little")
        self.ledger.remember(Publication(name, self.outer.round, deltas, payloads))
        own = AgreedContribution(ME, name, progress.steps, progress.tokens, payloads)
        new = advance(self.outer, [own] if is_agreed else []).state
        self.trainer.shift(self.ledger.move(self.outer, new, ME))
        self.outer = new

    def snapshot(self) -> Snapshot:
        return Snapshot(
            outer=self.outer,
            local=self.trainer.local(),
            ledger=self.ledger.to_tensors(),
            inner=self.trainer.inner_state(),
            meta={"seconds": 1.5, "name": "alice"},
        )

    def restore(self, snapshot: Snapshot) -> None:
        self.outer = snapshot.outer
        self.ledger = Ledger.from_tensors(*snapshot.ledger, CODEC)
        self.trainer.load(snapshot.local)
        self.trainer.load_inner_state(*snapshot.inner)


def flat(snapshot: Snapshot) -> dict[str, Tensor]:
    named = {f"local.{i}": tensor for i, tensor in enumerate(snapshot.local)}
    for fragment in snapshot.outer.fragments:
        named[f"params.{fragment.name}"] = fragment.params
        named[f"momentum.{fragment.name}"] = fragment.momentum
    return named | dict(snapshot.ledger[0]) | dict(snapshot.inner[0])


def same(a: Snapshot, b: Snapshot) -> bool:
    """Whether two snapshots are equal bit for bit."""
    tensors_a, tensors_b = flat(a), flat(b)
    return (
        a.outer.digest == b.outer.digest
        and (a.ledger[1], a.inner[1], a.meta) == (b.ledger[1], b.inner[1], b.meta)
        and tensors_a.keys() == tensors_b.keys()
        and all(torch.equal(tensors_a[name], tensors_b[name]) for name in tensors_a)
    )


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: what a full disk does to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_restarted_node_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path):
    whole = Node()
    whole.round()
    whole.round(is_agreed=False)
    whole.trainer.step()
    CheckpointStore(tmp_path, 5).save(whole.snapshot())
    for is_agreed in (True, False, True):
        whole.round(is_agreed=is_agreed)
    found = CheckpointStore(tmp_path, 5).load_latest()
    assert found is not None
    restarted = Node(seed=99)
    restarted.restore(found)
    assert not same(restarted.snapshot(), whole.snapshot())
    for is_agreed in (True, False, True):
        restarted.round(is_agreed=is_agreed)
    assert same(restarted.snapshot(), whole.snapshot())


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path):
    assert CheckpointStore(tmp_path / "new", 5).load_latest() is None


def test_the_newest_is_loaded_and_only_so_many_are_kept(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 2), Node()
    saved = []
    for _ in range(4):
        node.round(1)
        saved.append(store.save(node.snapshot()))
    assert store.paths() == saved[2:]
    found = CheckpointStore(tmp_path, 2).load_latest()
    assert found is not None
    assert same(found, node.snapshot())
    assert sorted(tmp_path.iterdir()) == saved[2:]
    node.round(1)
    assert CheckpointStore(tmp_path, 2).save(node.snapshot()) > saved[-1]


def test_a_state_of_an_earlier_round_that_is_saved_later_counts_as_newer(tmp_path: Path):
    """A node that moved to another lineage may be at a smaller round."""
    store, ahead, behind = CheckpointStore(tmp_path, 3), Node(), Node()
    ahead.round(1)
    ahead.round(1)
    store.save(ahead.snapshot())
    store.save(behind.snapshot())
    found = store.load_latest()
    assert found is not None
    assert found.outer.round == 0


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


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
    store, node = CheckpointStore(tmp_path, 3), Node()
    node.round(1)
    before = node.snapshot()
    good = store.save(before)
    node.round(1)
    bad = store.save(node.snapshot())
    damage(bad)
    with caplog.at_level(logging.WARNING):
        found = CheckpointStore(tmp_path, 3).load_latest()
    assert found is not None
    assert same(found, before)
    aside = bad.with_name(bad.name + ".damaged")
    assert sorted(tmp_path.iterdir()) == [good, aside]
    reason = (aside / REASON).read_text().strip()
    assert reason
    assert reason in caplog.text


def test_every_byte_of_the_manifest_counts(tmp_path: Path):
    """A flipped bit either changes nothing of what is read, or is noticed."""
    store, node = CheckpointStore(tmp_path, 1), Node()
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
        if found is None:
            noticed += 1
            shutil.rmtree(path.with_name(path.name + ".damaged"))
            shutil.copytree(backup, path)
        else:
            assert same(found, node.snapshot())
    assert noticed > 0.5 * len(whole) / 37


def test_a_consistent_manifest_with_another_outer_state_is_refused(tmp_path: Path):
    """The digest of the outer state is checked too, not only the hashes of the files."""
    from neuroswarm.checkpoint.store import _hash_json

    store, node = CheckpointStore(tmp_path, 1), Node()
    node.round(1)
    path = store.save(node.snapshot())
    body = json.loads((path / MANIFEST).read_text())["body"]
    body["outer"]["round"] += 1
    (path / MANIFEST).write_text(json.dumps({"sha256": _hash_json(body), "body": body}))
    assert store.load_latest() is None
    aside = path.with_name(path.name + ".damaged")
    assert "digest" in (aside / REASON).read_text()


def test_when_all_are_damaged_there_is_none_and_all_are_kept(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 3), Node()
    paths = [store.save(node.snapshot()) for _ in range(3)]
    for path in paths:
        flip(path / TENSORS, 0.5)
    assert store.load_latest() is None
    assert len(list(tmp_path.glob("*.damaged"))) == 3
    assert store.save(node.snapshot()) > paths[-1]
    assert store.load_latest() is not None


@pytest.mark.parametrize("limit", [0, 100, 20_000, 40_000])
def test_a_full_disk_is_one_clear_error_and_damages_nothing(tmp_path: Path, limit: int):
    store, node = CheckpointStore(tmp_path, 3), Node()
    good = store.save(node.snapshot())
    node.round(1)
    with full_disk(limit), pytest.raises(CheckpointError, match="cannot write checkpoint"):
        store.save(node.snapshot())
    assert list(tmp_path.iterdir()) == [good]
    assert store.load_latest() is not None
    assert store.save(node.snapshot()) > good


def test_a_full_disk_at_the_manifest_leaves_no_half_checkpoint(tmp_path: Path):
    """The tensors fit, the manifest does not."""
    node = Node()
    store = CheckpointStore(tmp_path, 3, config={"padding": "x" * 1_000_000})
    with full_disk(900_000), pytest.raises(CheckpointError, match="cannot write checkpoint"):
        store.save(node.snapshot())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot use .*file"):
        CheckpointStore(tmp_path / "file" / "checkpoints", 3)


def test_a_folder_that_vanished_is_a_clear_error(tmp_path: Path):
    store = CheckpointStore(tmp_path / "checkpoints", 3)
    (tmp_path / "checkpoints").rmdir()
    with pytest.raises(CheckpointError, match="cannot write checkpoint"):
        store.save(Node().snapshot())
    with pytest.raises(CheckpointError, match="cannot list"):
        store.load_latest()


def test_what_a_killed_writer_left_is_no_checkpoint_and_goes_away(tmp_path: Path):
    store, node = CheckpointStore(tmp_path, 3), Node()
    good = store.save(node.snapshot())
    shutil.copytree(good, tmp_path / ".tmp-checkpoint-00000002")
    again = CheckpointStore(tmp_path, 3)
    assert list(tmp_path.iterdir()) == [good]
    assert again.paths() == [good]


def test_tensors_that_share_memory_are_written_whole(tmp_path: Path):
    node = Node()
    shared = torch.arange(6, dtype=torch.float32)
    snapshot = node.snapshot()
    odd = Snapshot(
        snapshot.outer,
        snapshot.local,
        snapshot.ledger,
        ({"a": shared, "b": shared, "c": shared[1:3], "d": shared.view(2, 3).t()}, {}),
    )
    CheckpointStore(tmp_path, 1).save(odd)
    found = CheckpointStore(tmp_path, 1).load_latest()
    assert found is not None
    assert same(found, odd)


def test_the_manifest_shows_the_configuration(tmp_path: Path):
    store = CheckpointStore(tmp_path, 1, config={"training": {"lr": 0.002}})
    path = store.save(Node().snapshot())
    body = json.loads((path / MANIFEST).read_text())["body"]
    assert body["config"] == {"training": {"lr": 0.002}}
    assert store.bytes_written >= (path / TENSORS).stat().st_size


def test_at_least_one_checkpoint_is_kept(tmp_path: Path):
    with pytest.raises(ValueError, match="max_checkpoints"):
        CheckpointStore(tmp_path, 0)


def test_the_applied_table_and_rules_come_back(tmp_path: Path):
    node = Node()
    node.round(1)
    node.round(1)
    CheckpointStore(tmp_path, 1).save(node.snapshot())
    found = CheckpointStore(tmp_path, 1).load_latest()
    assert found is not None
    restored: OuterState = found.outer
    assert restored.applied == node.outer.applied
    assert len(restored.applied[ME]) == 2
    assert restored.rules == node.outer.rules
    assert restored.architecture == node.outer.architecture
    assert found.meta == {"seconds": 1.5, "name": "alice"}
