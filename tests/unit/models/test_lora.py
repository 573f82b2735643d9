"""Adapters beside the layers of any model."""

import copy

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.errors import ConfigError
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.frozen_base import frozen_parameters, hash_base
from neuroswarm.models.lora import attach_lora, branches, count_adapters, merge_lora
from neuroswarm.models.lora_branch import LoraOptions
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig

OPTIONS = LoraOptions(rank=3, alpha=6.0)
TOKENS = torch.arange(24).view(2, 12) % 11


def transformer() -> nn.Module:
    return Transformer(TransformerConfig(dim=16, num_layers=2, num_heads=2, vocab_size=11))


def rwkv7() -> nn.Module:
    """As if trained: new ones have matrices of zeros, which let no gradient through."""
    model = Rwkv7(Rwkv7Config(dim=16, num_layers=2, head_size=8, vocab_size=11))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


class Tied(nn.Module):
    """An embedding whose weight makes the logits too, and a list of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.out(torch.tanh(self.layers[0](self.embedding(tokens))))
        return result


def fill(model: nn.Module) -> None:
    """Give every B some values."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for branch in branches(model).values():
            branch.B.normal_(std=0.2, generator=generator)


@pytest.mark.parametrize("make", [transformer, rwkv7, Tied])
def test_adapters_change_nothing_at_first_and_only_b_is_trained(make: type[nn.Module]):
    model = make()
    before = model(TOKENS)
    names = attach_lora(model, OPTIONS)
    assert torch.equal(model(TOKENS), before)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [f"{name}.lora.B" for name in names]
    fill(model)
    assert not torch.allclose(model(TOKENS), before)


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (transformer, ("attention.qkv", "attention.out", "feed_forward.gate_and_value",
                       "feed_forward.out")),
        (rwkv7, ("att.receptance", "att.key", "att.value", "att.output", "ffn.key", "ffn.value")),
    ],
)  # fmt: skip
def test_all_linear_layers_but_the_head_are_adapted(make: type[nn.Module], layers: tuple[str, ...]):
    model = make()
    names = attach_lora(model, OPTIONS)
    assert names == tuple(f"blocks.{block}.{layer}" for block in range(2) for layer in layers)
    assert Fragments(model).names == ("blocks.0", "blocks.1")


def test_an_output_that_shares_the_embedding_is_a_head():
    assert attach_lora(Tied(), OPTIONS) == ("layers.0",)


def test_every_b_gets_a_gradient_and_the_base_keeps_its_bits():
    model = rwkv7()
    base = hash_base(model.named_parameters())
    attach_lora(model, OPTIONS)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        model(TOKENS, TOKENS).backward()
        assert all(branch.B.grad is not None for branch in branches(model).values())
        assert all(branch.B.grad.any() for branch in branches(model).values())
        optimizer.step()
        optimizer.zero_grad()
    left = [(n, p) for n, p in model.named_parameters() if ".lora." not in n]
    assert hash_base(left) == base


@pytest.mark.parametrize("make", [transformer, rwkv7, Tied])
def test_merged_weights_compute_what_the_adapters_did(make: type[nn.Module]):
    model = make()
    attach_lora(model, OPTIONS)
    fill(model)
    kept = copy.deepcopy(model)
    logits = model(TOKENS)
    assert merge_lora(model) == tuple(branches(kept))
    assert not branches(model)
    assert model.state_dict().keys() == make().state_dict().keys()
    torch.testing.assert_close(model(TOKENS), logits, rtol=1e-4, atol=1e-5)
    assert torch.equal(kept(TOKENS), logits)  # a copy has hooks of its own


def test_embeddings_are_adapted_where_they_are_named():
    model = transformer()
    assert attach_lora(model, LoraOptions(2, 4.0, targets=("embedding", "qkv"))) == (
        "embedding",
        "blocks.0.attention.qkv",
        "blocks.1.attention.qkv",
    )
    fill(model)
    logits = model(TOKENS)
    merge_lora(model)
    torch.testing.assert_close(model(TOKENS), logits, rtol=1e-4, atol=1e-5)


def test_patterns_name_layers_by_their_ends_and_with_stars():
    targets = ("att.key", "blocks.1.ffn.*", "head")
    assert attach_lora(rwkv7(), LoraOptions(2, 4.0, targets=targets)) == (
        "blocks.0.att.key",
        "blocks.1.att.key",
        "blocks.1.ffn.key",
        "blocks.1.ffn.value",
        "head",
    )


def test_a_pattern_that_names_no_layer_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"'query' names no layer \(there are embedding, .*qkv"):
        attach_lora(transformer(), LoraOptions(2, 4.0, targets=("qkv", "query")))


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(ConfigError, match="no linear layer to adapt in Embedding"):
        attach_lora(nn.Embedding(3, 2), OPTIONS)


def test_layers_that_their_owner_passes_by_are_no_targets():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert attach_lora(model, OPTIONS) == ("linear1", "linear2")
    x = torch.ones(1, 3, 8)
    before = model(x)
    fill(model)
    with torch.inference_mode():  # where the layer would take a shortcut past linear1
        assert not torch.allclose(model(x), before)


def test_a_weight_that_others_use_too_is_not_merged():
    model = Tied()
    attach_lora(model, LoraOptions(2, 4.0, targets=("out",)))
    with pytest.raises(ConfigError, match="out shares its weight with embedding"):
        merge_lora(model)


def test_putting_on_twice_keeps_what_was_trained():
    model = transformer()
    names = attach_lora(model, OPTIONS)
    fill(model)
    logits = model(TOKENS)
    assert attach_lora(model, OPTIONS) == names
    assert torch.equal(model(TOKENS), logits)
    with pytest.raises(ConfigError, match="other options already"):
        attach_lora(model, LoraOptions(rank=2, alpha=6.0))


def test_both_matrices_are_trained_if_asked_for():
    model = transformer()
    attach_lora(model, LoraOptions(3, 6.0, train_a=True))
    trained = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"A", "B"}
    assert sum(Fragments(model).sizes) == count_adapters(model)[1]


def test_what_must_be_alike_is_in_the_hashes():
    def hashes(**changes: object) -> tuple[bytes, bytes]:
        model = transformer()
        attach_lora(model, LoraOptions(**{"rank": 3, "alpha": 6.0, **changes}))  # type: ignore[arg-type]
        return Fragments(model).architecture, hash_base(frozen_parameters(model))

    same = hashes()
    assert hashes() == same
    assert hashes(dropout=0.1) == same  # a node's own choice
    others = [
        hashes(rank=2), hashes(alpha=3.0), hashes(seed=1), hashes(train_a=True),
        hashes(targets=("qkv",)),
    ]  # fmt: skip
    architectures = [same[0], *(architecture for architecture, _ in others)]
    assert len(set(architectures)) == len(architectures)
    assert hashes(seed=1)[1] != same[1]
    assert hashes(train_a=True, seed=1)[0] == hashes(train_a=True)[0]  # A is the genesis's then


def test_adapters_of_a_half_precision_base_are_float32():
    model = Tied().to(torch.bfloat16)
    attach_lora(model, OPTIONS)
    fill(model)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    assert model(TOKENS).dtype == torch.bfloat16
    merge_lora(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_dropout_is_for_training_only():
    model = Tied()
    attach_lora(model, LoraOptions(3, 6.0, dropout=0.5))
    fill(model)
    assert not torch.equal(model(TOKENS), model(TOKENS))
    model.eval()
    assert torch.equal(model(TOKENS), model(TOKENS))
