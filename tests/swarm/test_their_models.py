"""Modules that users bring, of every kind, hold the same bits at all nodes after every round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.cli.main import run
from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.errors import ConfigError
from neuroswarm.node.workload import Workload
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm
from neuroswarm.testing.tiny_workload import VOCABULARY, TinyModel, tiny_text

ROUNDS = 3


async def train_together(folder: Path, make: Callable[[str, int], Workload]) -> list[Member]:
    """Two nodes train for some rounds and agree in all of them; returns them, stopped."""
    async with Swarm(folder, make_workload=make) as swarm:
        members = await swarm.found("anna", "bert")
        await swarm.until_round(ROUNDS)
        await swarm.until_level()
        digests = await swarm.digests()
        losses = [e["held_out_loss"] for e in await members[0].events() if e["event"] == "commit"]
    assert len(digests) >= ROUNDS
    assert all(len(found) == 1 for found in digests.values()), digests
    assert losses[-1] < losses[0]
    for member in members:
        assert member.statistics.contributions_published >= 2
        assert member.parts.trainer.num_dropped == 0
    return members


class Odd(nn.Module):
    """Sparse gradients, tied, empty, unused and scalar parameters, four dtypes, no language head.

    The sparse embedding learns together with the dense one that the head shares.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Embedding(VOCABULARY, 16)
        self.sparse = nn.Embedding(VOCABULARY, 16, sparse=True)
        self.bf16 = nn.Linear(16, 16, dtype=torch.bfloat16)
        self.fp16 = nn.Linear(16, 16, dtype=torch.float16)
        self.fp64 = nn.Linear(16, 16, dtype=torch.float64)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.empty = nn.ParameterList([torch.empty(0, 4)])
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(16, VOCABULARY, bias=False)
        self.head.weight = self.tied.weight

    def forward(self, inputs_BT: Tensor) -> Tensor:
        x = self.tied(inputs_BT) + self.sparse(inputs_BT)
        x = x + self.bf16(x.bfloat16()).float() + self.fp16(x.half()).float()
        x = torch.tanh(x + self.fp64(x.double()).float())
        result: Tensor = self.head(x) * self.scale
        return result


async def test_parameters_of_every_kind(tmp_path: Path):
    torch.manual_seed(0)
    anna, bert = await train_together(tmp_path, lambda *_: Workload(Odd(), tiny_text()))
    for member in (anna, bert):
        model = member.parts.trainer._model
        assert isinstance(model, Odd)
        assert model.head.weight is model.tied.weight
        assert model.fp64.weight.dtype == torch.float64
    names = anna.parts.trainer.fragments.names
    assert names == ("(root)", "tied", "sparse", "bf16", "fp16", "fp64", "unused")


class Images:
    """Pictures [B, 1, 8, 8] of ten classes: which of ten pixels is bright."""

    def train(self, index: int) -> tuple[Tensor, Tensor]:
        return self._draw(index)

    def held_out(self, index: int, _num_batches: int) -> tuple[Tensor, Tensor]:
        return self._draw(10**6 + index)

    def _draw(self, seed: int) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(seed)
        labels = torch.randint(10, (16,), generator=source)
        pictures = 0.3 * torch.randn(16, 1, 8, 8, generator=source)
        pictures[torch.arange(16), 0, labels // 4, labels % 4] += 2
        return pictures, labels


def classification_loss(model: nn.Module, pictures: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(pictures), labels)


async def test_an_image_classifier_with_local_batch_norm(tmp_path: Path):
    def make(_name: str, _seed: int) -> Workload:
        torch.manual_seed(0)
        layers = (
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 10),
        )
        return Workload(nn.Sequential(*layers), Images(), classification_loss)

    anna, bert = await train_together(tmp_path, make)
    buffers = [dict(m.parts.trainer._model.named_buffers()) for m in (anna, bert)]
    for member, own in zip((anna, bert), buffers, strict=True):
        # Each counted its own steps, and its statistics are of them: nothing was averaged.
        assert int(own["1.num_batches_tracked"]) == member.parts.trainer.total.steps
        assert own["1.num_batches_tracked"].dtype == torch.int64
        assert not torch.equal(own["1.running_mean"], torch.zeros(4))
    assert anna.parts.trainer.fragments.names == ("0", "1", "4")
    assert run(["export", str(anna.folder), "--to", str(tmp_path / "out")]) == 0
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert exported.keys() == anna.parts.trainer._model.state_dict().keys()
    kept = CheckpointStore(anna.folder / "checkpoints", 5).load_latest()
    assert kept is not None
    assert kept.snapshot is not None
    saved, _ = kept.snapshot.inner  # as of the last checkpoint: steps may have followed
    assert all(torch.equal(exported[name], saved[f"buffer.{name}"]) for name in buffers[0])
    assert 0 < int(exported["1.num_batches_tracked"]) <= int(buffers[0]["1.num_batches_tracked"])


async def test_nodes_with_other_frozen_weights_do_not_mix(tmp_path: Path):
    frozen_by: dict[int, float] = {0: 0.5, 1: 0.25}

    def make(_name: str, seed: int) -> Workload:
        model = TinyModel(7)
        model.hidden.requires_grad_(False)
        nn.init.constant_(model.hidden.bias, frozen_by[seed])
        return Workload(model, tiny_text())

    async with Swarm(tmp_path, make_workload=make) as swarm:
        anna, bert, carl = (
            *await swarm.start("anna", model_seed=0),
            *await swarm.start("bert", model_seed=0),
            *await swarm.start("carl", model_seed=1),
        )
        await swarm.until(
            lambda: any(p.node_id == anna.node_id for p in carl.parts.rounds.crowd.strangers()),
            what="carl to see strangers",
        )
        await swarm.more_rounds(2, [anna, bert])
        assert len({m.parts.cohort.swarm_id for m in (anna, bert, carl)}) == 2
        assert len({m.parts.cohort.architecture for m in (anna, bert, carl)}) == 1
        live = [peer.node_id for peer in anna.parts.rounds.crowd.live()]
        assert live == [bert.node_id]
        assert carl.parts.rounds.crowd.live() == []
        hidden = anna.parts.trainer._model.get_parameter("hidden.bias")
        assert bool((hidden == 0.5).all())
        await swarm.until(lambda: carl.statistics.durable_round is not None, what="a checkpoint")
        frozen_by[1] = 0.75
        with pytest.raises(ConfigError, match="checkpoint on other frozen parameters in"):
            await swarm.restart(carl)


class Unmeasurable:
    """Batches whose held-out part cannot be had."""

    def __init__(self) -> None:
        self._batches = WindowSampler(FlatTokens(tiny_text()), context=16, batch_size=4, seed=0)

    def train(self, index: int) -> Batch:
        return self._batches.train(index)

    def held_out(self, index: int, num_batches: int) -> Batch:
        raise OSError("the disk with the held-out text is gone")


async def test_what_cannot_be_measured_ends_nothing(tmp_path: Path, caplog):
    def make(_name: str, seed: int) -> Workload:
        return Workload(TinyModel(seed), Unmeasurable())

    async with Swarm(tmp_path, make_workload=make) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(3)
        assert anna.statistics.held_out_loss is None
    assert "the held-out loss was not measured" in caplog.text
