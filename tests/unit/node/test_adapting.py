"""The settings of adapters, and the base that they stand on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neuroswarm.checkpoint.tensor_file import write_tensors
from neuroswarm.clock import SystemClock
from neuroswarm.config import LoraConfig, SwarmNodeConfig
from neuroswarm.errors import ConfigError
from neuroswarm.models.loading import load_base
from neuroswarm.models.lora import branches
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.adapting import adapt
from neuroswarm.node.workload import Workload
from neuroswarm.testing.tiny_gpt2 import write_gpt2
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

SHAPE = TransformerConfig(dim=16, num_layers=2, num_heads=2, context=16)
TRAINING = {"dim": 16, "num_layers": 2, "num_heads": 2, "context": 16, "batch_size": 2}


def config(**lora: Any) -> SwarmNodeConfig:
    return SwarmNodeConfig(training=TRAINING, lora=lora)


def write_base(path: Path, *, seed: int = 3) -> Transformer:
    model = Transformer(SHAPE, seed=seed)
    write_tensors(path, model.state_dict())
    return model


def test_without_rank_nothing_is_frozen():
    model = Transformer(SHAPE)
    adapt(model, LoraConfig(), seed=0, has_weights=False)
    assert all(p.requires_grad for p in model.parameters())


def test_the_base_of_a_file_is_trained_on_top_of(tmp_path: Path):
    base = write_base(tmp_path / "base.safetensors")
    workload = Workload(data=tiny_text())
    trainer = workload.make_trainer(
        config(rank=2, base=tmp_path / "base.safetensors"), SystemClock()
    )
    first = trainer.step().loss
    assert all(name.endswith(".lora.B") for name, _ in trainer.fragments.parameters)
    assert trainer.fragments.base
    alone = Workload(base, tiny_text()).make_trainer(config(), SystemClock())
    assert first == alone.step().loss


def test_a_base_may_be_in_several_files_of_a_folder(tmp_path: Path):
    tensors = Transformer(SHAPE, seed=3).state_dict()
    names = sorted(tensors)
    for number, part in enumerate((names[:5], names[5:])):
        write_tensors(tmp_path / f"part-{number}.safetensors", {n: tensors[n] for n in part})
    model = Transformer(SHAPE)
    adapt(model, LoraConfig(rank=2, base=tmp_path), seed=0, has_weights=False)
    assert torch.equal(model.head.projection.weight, tensors["head.projection.weight"])


def test_adapters_without_trained_weights_are_refused():
    with pytest.raises(ConfigError, match=r"lora\.rank: adapters need trained weights"):
        adapt(Transformer(SHAPE), LoraConfig(rank=2), seed=0, has_weights=False)


def test_a_base_without_rank_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="lora: base without rank"):
        config(base=tmp_path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "is not there"),
        (lambda path: path.mkdir(), r"no \*.safetensors file in"),
        (lambda path: path.write_bytes(b"no file of this format"), "cannot read"),
    ],
)
def test_a_base_that_cannot_be_read_is_refused(make: Any, said: str, tmp_path: Path):
    path = tmp_path / "base.safetensors"
    make(path)
    with pytest.raises(ConfigError, match=rf"lora.base: .*{said}"):
        adapt(Transformer(SHAPE), LoraConfig(rank=2, base=path), seed=0, has_weights=False)


def test_a_file_of_another_format_is_refused(tmp_path: Path):
    path = tmp_path / "base.pth"
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"no \*.safetensors file \(other formats"):
        adapt(Transformer(SHAPE), LoraConfig(rank=2, base=path), seed=0, has_weights=False)


def test_a_base_of_another_shape_is_refused_by_its_names(tmp_path: Path):
    path = tmp_path / "base.safetensors"
    write_base(path)
    model = Transformer(TransformerConfig(dim=32, num_layers=2, num_heads=2))
    with pytest.raises(ConfigError, match=r"does not fit .* of another shape: .*qkv.weight"):
        adapt(model, LoraConfig(rank=2, base=path), seed=0, has_weights=False)


def test_missing_and_unknown_weights_are_named_and_nothing_is_changed():
    model = Transformer(SHAPE)
    before = model.embedding.weight.detach().clone()
    tensors = Transformer(SHAPE, seed=3).state_dict()
    short = {name: tensor for name, tensor in tensors.items() if "norm" not in name}
    with pytest.raises(ValueError, match=r"parameters missing: blocks\.0\.attention_norm"):
        load_base(model, short)
    with pytest.raises(ValueError, match="parameters unknown: more"):
        load_base(model, {**tensors, "more": torch.ones(1)})
    assert torch.equal(model.embedding.weight, before)


def test_a_shared_weight_may_have_either_name():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    load_base(model, {"b.weight": torch.ones(2, 2)})
    assert torch.equal(model["a"].weight, torch.ones(2, 2))


def test_a_model_that_was_handed_over_keeps_its_weights_and_its_adapters_when_made_anew():
    model = TinyModel()
    weight = model.hidden.weight.detach().clone()
    workload = Workload(model, tiny_text())
    settings = config(rank=2, targets="hidden")
    workload.make_trainer(settings, SystemClock()).step()
    trained = {name: branch.B.detach().clone() for name, branch in branches(model).items()}
    assert trained["hidden"].any()
    again = workload.make_trainer(settings, SystemClock())
    assert torch.equal(model.hidden.weight, weight)
    assert torch.equal(again.fragments.flatten(0), trained["hidden"].flatten())


def with_adapters(folder: Path, **lora: Any) -> None:
    training = {"model": f"hf:{folder}", "context": 16, "batch_size": 2}
    config = SwarmNodeConfig(training=training, lora={"rank": 2, **lora})
    Workload(data=tiny_text()).make_trainer(config, SystemClock())


def test_adapters_on_a_folder_without_weights_are_refused(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m", vocab_size=256, width=16, num_layers=1)
    with pytest.raises(ConfigError, match=r"lora\.rank: .* save them as model\.safetensors in the"):
        with_adapters(folder)
    write_gpt2(tmp_path / "m", vocab_size=256, width=16, num_layers=1, seed=1)
    with_adapters(folder)


def test_a_base_beside_a_folder_is_refused(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m", vocab_size=256, width=16, num_layers=1, seed=1)
    with pytest.raises(ConfigError, match=r"lora\.base: .*the base of a Hugging Face model is its"):
        with_adapters(folder, base=tmp_path / "base.safetensors")


def test_a_folder_is_recorded_as_it_is_from_any_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_gpt2(tmp_path / "m", vocab_size=256, width=16, num_layers=1, seed=1)
    monkeypatch.chdir(tmp_path)
    config = SwarmNodeConfig(training={"model": "hf:m", "context": 16, "batch_size": 2})
    record = Workload(data=tiny_text()).prepare(config, SystemClock()).about.record
    assert record.model == record.training["model"] == f"hf:{tmp_path / 'm'}"
