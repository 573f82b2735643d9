"""Adapters of the library peft: those handed over, and ours as peft reads them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.checkpoint.peft_folder import write_peft
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import ConfigError
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.frozen_base import frozen_parameters, hash_base
from neuroswarm.models.lora import attach_lora, branches
from neuroswarm.models.lora_branch import LoraOptions
from neuroswarm.models.lora_draw import bound_of, draw_a
from neuroswarm.models.peft_models import is_peft, settle_peft
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.workload import Workload
from neuroswarm.testing.tiny_workload import tiny_text

peft = pytest.importorskip("peft")

TOKENS = torch.arange(24).view(2, 12) % 11


class Plain(nn.Module):
    """A module of nobody's library."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.hidden = nn.Linear(8, 16)
        self.out = nn.Linear(16, 11)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.3, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.out(torch.tanh(self.hidden(self.embedding(tokens))))
        return result


def transformer() -> nn.Module:
    return Transformer(TransformerConfig(dim=16, num_layers=2, num_heads=2, vocab_size=11))


def rwkv7() -> nn.Module:
    return Rwkv7(Rwkv7Config(dim=16, num_layers=2, head_size=8, vocab_size=11))


def wrap(seed: int, **changes: object) -> nn.Module:
    """A peft model as a user makes it, with A of that seed."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["hidden", "embedding"], **changes)
    model: nn.Module = peft.get_peft_model(Plain(), config)
    return model


def fill(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for branch in branches(model).values():
            branch.B.normal_(std=0.2, generator=generator)


@pytest.mark.parametrize(
    ("make", "targets"),
    [
        (Plain, ()), (Plain, ("embedding", "out")), (transformer, ()), (rwkv7, ()),
        (rwkv7, ("emb", "ffn.key", "head")),
    ],
)  # fmt: skip
def test_peft_reads_what_is_written_and_computes_the_same(
    make: Callable[[], nn.Module], targets: tuple[str, ...], tmp_path: Path
):
    model = make()
    attach_lora(model, LoraOptions(rank=3, alpha=5.0, targets=targets))
    fill(model)
    write_peft(model, tmp_path)
    theirs = peft.PeftModel.from_pretrained(make(), tmp_path)
    torch.testing.assert_close(theirs(TOKENS), model(TOKENS), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(model(TOKENS), make()(TOKENS))


def test_a_model_without_adapters_is_not_written(tmp_path: Path):
    with pytest.raises(ConfigError, match="no low-rank adapters"):
        write_peft(Plain(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_handed_over_model_gets_the_a_of_every_node():
    models = [wrap(seed) for seed in (1, 2)]
    before = models[0](TOKENS)
    for model in models:
        assert is_peft(model)
        assert settle_peft(model, seed=7, train_a=False) == 2
    first, second = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = draw_a("hidden", 7, (4, 8), bound_of(8))
    assert torch.equal(first["base_model.model.hidden.lora_A.default.weight"], drawn)
    assert torch.equal(models[0](TOKENS), before)
    trained = {name for name, p in first.items() if p.requires_grad}
    assert trained == {
        "base_model.model.hidden.lora_B.default.weight",
        "base_model.model.embedding.lora_embedding_B.default",
    }


def test_adapters_that_were_trained_before_stay():
    model = wrap(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    settle_peft(model, seed=7, train_a=False)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert {n for n, p in model.named_parameters() if p.requires_grad and "lora_A" in n} == set()


def test_a_is_trained_if_asked_for():
    model = wrap(1)
    settle_peft(model, seed=7, train_a=True)
    assert sum(p.requires_grad for p in model.parameters()) == 4


def test_the_scale_of_a_handed_over_adapter_is_in_the_architecture():
    def hashes(**changes: object) -> tuple[bytes, bytes]:
        model = wrap(1, **changes)
        settle_peft(model, seed=0, train_a=False)
        return Fragments(model).architecture, hash_base(frozen_parameters(model))

    assert hashes() == hashes()
    assert hashes(use_rslora=True)[0] != hashes()[0]


def test_a_built_in_model_with_adapters_of_peft_is_trained():
    def wrapped(num_layers: int) -> nn.Module:
        inner = Rwkv7(Rwkv7Config(dim=16, num_layers=2, head_size=16 // num_layers, vocab_size=11))
        model: nn.Module = peft.get_peft_model(inner, peft.LoraConfig(r=2, target_modules=["head"]))
        return model

    config = SwarmNodeConfig(training={"context": 12, "batch_size": 2})
    workload = Workload(wrapped(1), tiny_text() % 11)
    trainer = workload.make_trainer(config, SystemClock())
    assert trainer.step().tokens == 24
    assert len(trainer.fragments.parameters) == 1
    assert Fragments(wrapped(1)).architecture != Fragments(wrapped(2)).architecture  # its heads


def test_own_models_are_not_peft():
    assert not is_peft(Plain())
    assert not is_peft(transformer())
