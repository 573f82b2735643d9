"""Several devices of one node, as processes that compute on the processor and meet over gloo."""

from __future__ import annotations

import os
import signal
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import ConfigError
from neuroswarm.node.device_choice import choose_devices, choose_similar
from neuroswarm.node.device_work import RANK_MODULE, make_job, plan_devices
from neuroswarm.node.rank_main import build_trainer
from neuroswarm.node.workload import Workload
from neuroswarm.testing.waiting import until
from neuroswarm.training.devices import Devices
from neuroswarm.training.rank_channel import MAX_TENSOR_BYTES, RankChannel
from neuroswarm.training.rank_group import BUCKET_BYTES, bucketed
from neuroswarm.training.rank_process import command_for
from neuroswarm.training.ranks import DeviceLost, Patience, Ranks, schema_of, split_batch
from neuroswarm.training.trainer import Trainer

pytestmark = pytest.mark.timeout(240)  # processes that import torch, on machines that are busy

TEXT = torch.tensor(list(b"peers agree, then the swarm moves on. " * 60), dtype=torch.uint8)
STEPS = 12
SHAPE = {"dim": 16, "num_layers": 2, "num_heads": 2, "context": 16, "warmup_steps": 3}
TINY = SwarmNodeConfig(training={**SHAPE, "batch_size": 5, "lr": 1e-2})
QUICK = Patience(step_s=5.0)


class Strange(nn.Module):
    """A tied and a sparse embedding, several dtypes, dropout, a buffer and an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Embedding(256, 8)
        self.sparse = nn.Embedding(256, 8, sparse=True)
        self.norm = nn.BatchNorm1d(8)
        self.finer = nn.Linear(8, 8, dtype=torch.float64)
        self.coarser = nn.Linear(8, 8, dtype=torch.bfloat16)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(8, 256, bias=False)
        self.head.weight = self.tied.weight

    def forward(self, inputs_BT: Tensor) -> Tensor:
        x = self.tied(inputs_BT) + self.sparse(inputs_BT)
        x = self.norm(x.flatten(0, 1)).view_as(x)
        x = x + self.finer(x.double()).float() + self.coarser(x.bfloat16()).float()
        result: Tensor = self.head(F.dropout(x, 0.1, training=self.training))
        return result


def make_strange() -> tuple[nn.Module, Callable[[nn.Module, Tensor, Tensor], Tensor]]:
    """A factory that gives a loss too, as users write them."""
    return Strange(), own_loss


def own_loss(model: nn.Module, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs_BT).flatten(0, 1), targets_BT.flatten())


def job_of(config: SwarmNodeConfig) -> dict[str, object]:
    return {**make_job(config, 256), "num_threads": 1}


def make_trainer(config: SwarmNodeConfig = TINY) -> Trainer:
    """What the node has, built as the other processes build theirs."""
    trainer = build_trainer({**job_of(config), "device": "cpu", "rank": 0})
    trainer.batches = WindowSampler(FlatTokens(TEXT), context=16, batch_size=5, seed=0)
    return trainer


def recruit(config: SwarmNodeConfig, patience: Patience | None = None) -> Callable[..., Ranks]:
    command, job = command_for(RANK_MODULE), job_of(config)
    return lambda devices: Ranks(command, job, devices, patience or Patience())


class Shared:
    """`Trainer.others` without what `Devices` does about failures."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def differentiate(self, trainer: Trainer, inputs: Tensor, targets: Tensor):
        return self.ranks.differentiate(trainer, inputs, targets, trainer.position)


def start(config: SwarmNodeConfig) -> Ranks:
    ranks = recruit(config)(["cpu", "cpu:1"])
    try:
        ranks.start(schema_of(make_trainer(config).model))
    except BaseException:
        ranks.close()
        raise
    return ranks


@pytest.fixture(scope="module")
def pair() -> Iterator[Shared]:
    """A main device and one more, for the built-in transformer."""
    ranks = start(TINY)
    yield Shared(ranks)
    ranks.close()
    assert not any(map(psutil.pid_exists, ranks.pids))


def run(trainer: Trainer, steps: int = STEPS) -> Trainer:
    for _ in range(steps):
        trainer.step()
    return trainer


def shared(pair: Shared, **changes: object) -> Trainer:
    trainer = make_trainer()
    for name, value in {"others": pair, **changes}.items():
        setattr(trainer, name, value)
    return trainer


def gap(a: Trainer, b: Trainer) -> float:
    """Largest difference of two parameters."""
    return max(float((x - y).abs().max()) for x, y in zip(a.local(), b.local(), strict=True))


def equal(a: Trainer, b: Trainer) -> bool:
    """Whether parameters, optimiser and counters are the same bit for bit."""
    (tensors_a, json_a), (tensors_b, json_b) = a.inner_state(), b.inner_state()
    same = all(torch.equal(tensors_a[name], tensors_b[name]) for name in tensors_a)
    return same and tensors_a.keys() == tensors_b.keys() and json_a == json_b and not gap(a, b)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_two_devices_train_as_one_and_twice_the_same(pair: Shared, optimizer):
    """The means of 3 and 2 windows are added in another order than the mean of 5: each gradient
    differs by a few units of float32, which AdamW divides by its own size where it is small: up to
    the step itself there. 12 steps of 0.01 at most moved parameters by 0.12; seen: 4e-7 (AdamW)."""
    plan = InnerPlan(optimizer, lambda steps: 0.01)
    trainers = [shared(pair), shared(pair), make_trainer()]
    for trainer in trainers:
        trainer.follow(plan)
        run(trainer)
    once, again, alone = trainers
    assert equal(once, again)
    assert gap(once, alone) < 1e-4
    assert gap(once, make_trainer()) > 0.05  # it did train
    assert once.total.tokens == alone.total.tokens == STEPS * 5 * 16
    assert once.last_loss == pytest.approx(alone.last_loss, rel=1e-5)


def test_another_number_of_devices_takes_a_checkpoint_up(pair: Shared):
    whole = run(shared(pair), 6)
    local, (tensors, counters) = whole.local(), whole.inner_state()
    run(whole, 6)
    for others, bound in ((pair, 0.0), (None, 1e-4)):
        resumed = shared(pair, others=others)
        resumed.load(local)
        resumed.load_inner_state(tensors, counters)
        assert gap(run(resumed, 6), whole) <= bound


def test_bfloat16_and_pieces_hold_on_all_devices(pair: Shared):
    once, alone, exact = (shared(pair), make_trainer(), make_trainer())
    for trainer in (once, alone):
        trainer.is_bf16, trainer.batching.piece = True, 2
        run(trainer, 3)
    run(exact, 3)
    assert gap(once, alone) < 0.03  # of as many steps of 0.01 at most
    assert float(abs(once.last_loss - exact.last_loss)) > 1e-6  # bfloat16 is coarser


class Fewest:
    """One window a batch, so that a device has none; or targets that the model does not know."""

    def __init__(self, num_windows: int, wrong_at: int | None = None) -> None:
        self._num_windows, self._wrong_at = num_windows, wrong_at

    def train(self, index: int) -> Batch:
        windows = TEXT[: 17 * self._num_windows].view(-1, 17).long()
        targets = windows[:, 1:].clone()
        if self._wrong_at == index:
            targets[0] = 999
        return windows[:, :-1], targets

    held_out = None


def test_a_device_without_windows_adds_nothing(pair: Shared):
    once, alone = shared(pair, batches=Fewest(1)), shared(pair, batches=Fewest(1), others=None)
    assert equal(run(once, 3), run(alone, 3))


def test_a_step_that_is_not_finite_on_any_device_is_dropped(pair: Shared):
    trainer = shared(pair)
    before = trainer.local()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.fill_(torch.inf)
    assert trainer.step().is_dropped
    trainer.load(before)
    assert not trainer.step().is_dropped


def test_what_fails_on_the_main_device_leaves_the_others_in_step(pair: Shared):
    trainer = shared(pair, batches=Fewest(4, wrong_at=1))
    trainer.step()
    with pytest.raises(IndexError):
        trainer.step()
    trainer.batches = Fewest(4)
    other = shared(pair, batches=Fewest(4))
    assert equal(run(other, 2), run(shared(pair, batches=Fewest(4)), 2))


def test_adapters_on_a_model_of_a_factory_train_on_all_devices():
    """Every kind of parameter, gradient and buffer, and a frozen base that chance made."""
    training = {**SHAPE, "batch_size": 5, "lr": 1e-2, "model": f"{__name__}:make_strange"}
    whole = SwarmNodeConfig(training=training)
    adapted = SwarmNodeConfig(training=training, lora={"rank": 2, "train_a": True})
    for config in (whole, adapted):
        ranks = start(config)
        try:
            once, again = (run(shared_with(config, ranks), 4) for _ in range(2))
        finally:
            ranks.close()
        assert equal(once, again)
        assert gap(once, make_trainer(config)) > 0.01
        assert once.num_dropped == 0


def shared_with(config: SwarmNodeConfig, ranks: Ranks) -> Trainer:
    trainer = make_trainer(config)
    trainer.others = Shared(ranks)
    return trainer


def test_another_model_in_the_other_process_is_noticed():
    ranks = recruit(TINY)(["cpu", "cpu:1"])
    with pytest.raises(DeviceLost, match="cpu:1: the model that was built there is another one"):
        ranks.start("other")
    ranks.close()
    assert not any(map(psutil.pid_exists, ranks.pids))


def test_why_a_model_cannot_be_built_there_is_told():
    training = {**SHAPE, "model": "no_such_module_at_all:make"}
    ranks = recruit(SwarmNodeConfig(training=training))(["cpu", "cpu:1"])
    with pytest.raises(DeviceLost, match=r"cpu:1: ConfigError: .*no_such_module_at_all"):
        ranks.start("")
    ranks.close()


async def test_training_goes_on_with_the_devices_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One of two further devices is killed within a step, then the last is stopped in one."""
    trainer = make_trainer()
    devices = Devices(trainer, ["cpu", "cpu:1", "cpu:2"], recruit(TINY, QUICK))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with devices:
        assert [found["state"] for found in devices.get_status()] == ["trains"] * 3
        run(trainer, 2)
        first = devices.pids
        inside_a_step(trainer, lambda: os.kill(first[0], signal.SIGKILL))
        run(trainer, 2)
        await until(lambda: len(devices.pids) == 1, what="the third device again")
        lost = devices.get_status()[1]
        assert lost == {
            "device": "cpu:1", "state": "lost: its process was killed by SIGKILL"
        }  # fmt: skip
        run(trainer, 2)
        second = devices.pids
        inside_a_step(trainer, lambda: os.kill(second[0], signal.SIGSTOP))
        assert devices.pids == ()
        run(trainer, 2)
        assert "lost: no answer" in devices.get_status()[2]["state"]
    assert not any(map(psutil.pid_exists, (*first, *second)))
    assert os.listdir(tmp_path) == []
    alone = run(make_trainer(), 10)
    assert trainer.total.steps == alone.total.steps == 10
    assert gap(trainer, alone) < 1e-4


def inside_a_step(trainer: Trainer, act: Callable[[], None]) -> None:
    """Take a step in which the main device acts once the others have begun with their parts."""
    compute = trainer._loss_fn

    def acting(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        trainer._loss_fn = compute
        act()
        return compute(model, inputs, targets)

    trainer._loss_fn = acting
    assert not trainer.step().is_dropped


@pytest.mark.parametrize(
    ("num_bytes", "takes_tensors"), [(MAX_TENSOR_BYTES + 1, True), (64, False)]
)
def test_messages_are_bounded_before_they_are_read(num_bytes: int, takes_tensors: bool):
    ours, theirs = socket.socketpair()
    channel = RankChannel(ours)
    with theirs:
        theirs.sendall(struct.pack("<QQ", 2, num_bytes))  # what it announces never comes
        with pytest.raises(ValueError, match="message of 2 and"):
            channel.receive(within_s=5, takes_tensors=takes_tensors)
    channel.close()


def test_a_process_that_says_nothing_is_not_waited_for():
    ours, theirs = socket.socketpair()
    channel = RankChannel(ours)
    with theirs:
        with pytest.raises(TimeoutError):
            channel.receive(within_s=0.05)
        with pytest.raises(TimeoutError):  # nor one that takes nothing
            channel.send({}, {"x": torch.zeros(4_000_000)}, within_s=0.05)
    with pytest.raises(OSError, match="reset"):  # it left what it was sent unread
        channel.receive(within_s=5)
    channel.close()


def test_the_end_of_a_process_is_noticed():
    ours, theirs = socket.socketpair()
    channel = RankChannel(ours)
    theirs.close()
    with pytest.raises(EOFError):
        channel.receive(within_s=5)
    channel.close()


def test_a_batch_is_split_into_disjoint_parts_that_are_all_of_it():
    inputs = torch.arange(10).view(5, 2)
    parts = split_batch(inputs, inputs + 1, 3)
    assert [len(part) for part, _ in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part for part, _ in parts]), inputs)
    assert torch.equal(torch.cat([targets for _, targets in parts]), inputs + 1)


def test_small_tensors_travel_together_by_dtype():
    large = torch.zeros(BUCKET_BYTES // 4)
    tensors = [torch.zeros(2), torch.zeros(3).double(), large, torch.zeros(0), torch.zeros(4)]
    sizes = [[tensor.numel() for tensor in bucket] for bucket in bucketed(tensors)]
    assert sizes == [[2, BUCKET_BYTES // 4], [3], [4]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cuda:0,cuda:0", "names a device twice"),
        ("cuda:0,cpu", "mixes kinds"),
        ("gpu", "'gpu' is no device"),
        ("cuda", "'cuda' is no device"),
        ("cpu,", "'' is no device"),
        (",".join(["cpu"] * 65), "65 devices"),
    ],
)
def test_lists_that_name_no_devices_are_refused(text: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        SwarmNodeConfig(resources={"devices": text})


def test_devices_of_the_settings():
    resources = SwarmNodeConfig(resources={"devices": "cpu, cpu,cpu"}).resources
    assert choose_devices(resources) == ("cpu", "cpu:1", "cpu:2")
    assert choose_devices(SwarmNodeConfig(resources={"device": "cpu"}).resources) == ("cpu",)
    both = SwarmNodeConfig(resources={"device": "mps", "devices": "cpu,cpu"}).resources
    with pytest.raises(ConfigError, match="mps is not the first"):
        choose_devices(both)
    assert choose_similar([80, 24, 79, 96, 101]) == [0, 2, 3]


def test_what_cannot_be_built_again_is_refused_in_one_line():
    config = SwarmNodeConfig(resources={"devices": "cpu,cpu"})
    handed = Workload(nn.Linear(2, 2), torch.zeros(4))
    for workload, complaint in (
        (handed, "a model that is handed over"),
        (Workload(loss_fn=own_loss), "a loss_fn that is handed over"),
        (replace(handed, has_own_loop=True), "a loop of your own"),
    ):
        with pytest.raises(ConfigError, match=f"resources.devices: cpu,cpu: {complaint}"):
            plan_devices(config, workload)
        assert plan_devices(SwarmNodeConfig(resources={"device": "cpu"}), workload) == ("cpu",)
    assert plan_devices(config, Workload()) == ("cpu", "cpu:1")
