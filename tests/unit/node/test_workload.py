"""What a user may bring to train on."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer
from neuroswarm.errors import ConfigError
from neuroswarm.node.workload import Workload
from neuroswarm.testing.tiny_gpt2 import write_gpt2, write_words
from neuroswarm.training.trainer import Trainer


def test_data_of_another_type_is_refused_by_its_name():
    data: Any = [1, 2, 3]
    workload = Workload(nn.Linear(2, 2), data)
    with pytest.raises(ConfigError, match="data of type list is neither a path, a tensor"):
        workload.make_trainer(SwarmNodeConfig(), SystemClock())


def test_the_model_of_the_settings_is_built(tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("a text that is long enough " * 200)
    names = {}
    for model in ("transformer", "rwkv7"):
        training = {"model": model, "dim": 64, "num_layers": 2, "context": 16}
        config = SwarmNodeConfig(training=training)
        trainer = Workload(data=text).make_trainer(config, SystemClock())
        assert math.isfinite(trainer.step().loss)
        names[model] = trainer.fragments.names
    assert names["transformer"] == ("embedding", "blocks.0", "blocks.1", "head")
    assert names["rwkv7"] == ("emb", "blocks.0", "blocks.1", "ln_out", "head")


def write_text(folder: Path) -> Path:
    (folder / "text").write_text("the swarm trains on and on " * 300)
    return folder / "text"


def test_a_factory_brings_its_own_loss_and_learns_the_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "with_loss.py").write_text(
        "from torch import nn\n"
        "def make(vocab_size):\n"
        "    return nn.Embedding(vocab_size, 3), lambda m, x, y: 7 + m(x).mean() * 0\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = SwarmNodeConfig(training={"model": "with_loss:make", "context": 16})
    trainer = Workload(data=write_text(tmp_path)).make_trainer(config, SystemClock())
    assert trainer.step().loss == 7
    assert trainer.fragments.sizes == (256 * 3,)
    other = Workload(data=tmp_path / "text", loss_fn=lambda m, x, _: 5 + m(x).mean() * 0)
    assert other.make_trainer(config, SystemClock()).step().loss == 5


def test_text_is_tokenised_as_the_folder_of_the_model_says(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m", vocab_size=8, width=16, num_layers=1)
    config = SwarmNodeConfig(training={"model": f"hf:{folder}", "context": 16, "batch_size": 2})
    trainer = Workload(data=write_text(tmp_path)).make_trainer
    with pytest.raises(ConfigError, match=r"data of 256 tokens, and the model in .* knows 8"):
        trainer(config, SystemClock())  # without a tokenizer, bytes
    write_words(folder)
    made = trainer(config, SystemClock())
    assert math.isfinite(made.step().loss)
    inputs, targets = made.batches.train(0)
    assert set(inputs.flatten().tolist()) == {2, 3, 4, 5, 6}
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


class Ones:
    """Batches of one's own, whose vocabulary nobody knows."""

    def train(self, _index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64)

    def held_out(self, index: int, _num_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.train(index)


def test_a_folder_trains_on_batches_of_ones_own(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m", vocab_size=8, width=16, num_layers=1)
    config = SwarmNodeConfig(training={"model": f"hf:{folder}", "context": 16})
    trainer = Workload(data=Ones()).make_trainer(config, SystemClock())
    assert math.isfinite(trainer.step().loss)


def test_shards_of_a_larger_vocabulary_or_too_long_windows_are_refused(tmp_path: Path):
    text = write_text(tmp_path)
    folder = write_gpt2(tmp_path / "m", vocab_size=8, width=16, num_layers=1, context=32)
    prepare([text], tmp_path / "bytes", ByteTokenizer())
    prepare([text], tmp_path / "words", FileTokenizer(write_words(folder)))
    training = {"model": f"hf:{folder}", "context": 16, "batch_size": 2}

    def make(data: Path, **changes: Any) -> Trainer:
        config = SwarmNodeConfig(training={**training, **changes})
        return Workload(data=data).make_trainer(config, SystemClock())

    assert math.isfinite(make(tmp_path / "words").step().loss)
    with pytest.raises(ConfigError, match=r"data of 256 tokens, and the model in .* knows 8"):
        make(tmp_path / "bytes")
    with pytest.raises(ConfigError, match=r"training.context: 33 \(the model in .* at most 32"):
        make(tmp_path / "words", context=33)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Linear(2, 2).requires_grad_(False), "cannot train Linear: model without trainable"),
        (nn.Linear(2, 2, device="meta"), "the model cannot be put on the device"),
    ],
)
def test_modules_that_cannot_be_trained_are_settings_that_cannot_be_used(
    model: nn.Module, said: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=said):
        Workload(model, write_text(tmp_path)).make_trainer(SwarmNodeConfig(), SystemClock())


def test_token_ids_that_the_built_in_model_does_not_know_are_refused():
    with pytest.raises(ConfigError, match="tokens up to 299 were handed in"):
        Workload(data=torch.arange(300)).make_trainer(SwarmNodeConfig(), SystemClock())


@pytest.mark.parametrize("model", ["transformer", "rwkv7"])
def test_a_model_larger_than_any_memory_is_refused_in_one_line(model: str, tmp_path: Path):
    config = SwarmNodeConfig(training={"model": model, "dim": 64 * 2**20}, state_dir=tmp_path)
    with pytest.raises(ConfigError, match="the model does not fit into memory"):
        Workload().make_trainer(config, SystemClock())
