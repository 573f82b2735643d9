import pytest
import torch
from torch import nn

from neuroswarm.models.fragments import ROOT, Fragments
from neuroswarm.models.transformer import Transformer, TransformerConfig

CONFIG = TransformerConfig(dim=16, num_layers=3, num_heads=2, context=8, vocab_size=11)


class Nested(nn.Module):
    """Blocks one level down, as in many published models, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.body = nn.Module()
        self.body.wte = nn.Embedding(5, 4)
        self.body.h = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in "ab")
        self.body.gain = nn.Parameter(torch.ones(2))
        self.head = nn.Linear(4, 5)


def test_embedding_each_block_and_head_are_fragments():
    fragments = Fragments(Transformer(CONFIG))
    assert fragments.names == ("embedding", "blocks.0", "blocks.1", "blocks.2", "head")
    assert sum(fragments.sizes) == sum(p.numel() for p in Transformer(CONFIG).parameters())


def test_lists_of_blocks_are_found_below_the_top():
    fragments = Fragments(Nested())
    assert fragments.names == (
        ROOT,
        "body",
        "body.wte",
        "body.h.0.0",
        "body.h.0.1",
        "body.h.1.0",
        "body.h.1.1",
        "head",
    )
    assert [name for name, _ in fragments.parameters][:2] == ["scale", "body.gain"]


def test_a_block_with_a_list_inside_stays_whole():
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    model = nn.Sequential(nn.Embedding(5, 2), Experts(), Experts())
    assert Fragments(model).names == ("0", "1", "2")


def test_a_bare_layer_is_one_fragment():
    fragments = Fragments(nn.Linear(3, 2))
    assert (fragments.names, fragments.sizes) == ((ROOT,), (8,))


def test_flat_vectors_go_out_and_come_back_unchanged():
    source, target = Fragments(Transformer(CONFIG, seed=1)), Fragments(Transformer(CONFIG, seed=2))
    flats = source.flatten_all()
    assert all(f.dtype == torch.float32 and f.is_contiguous() for f in flats)
    target.load_all(flats)
    assert all(map(torch.equal, target.flatten_all(), flats))
    loss = [f.parameters[0][1] for f in (source, target)]
    assert torch.equal(*loss)


def test_a_flat_vector_is_a_copy():
    model = Transformer(CONFIG)
    fragments = Fragments(model)
    flat = fragments.flatten(0)
    flat.zero_()
    assert model.embedding.weight.abs().sum() > 0


def test_shift_adds_to_every_parameter():
    fragments = Fragments(Nested())
    before = fragments.flatten_all()
    deltas = [torch.arange(n, dtype=torch.float32) for n in fragments.sizes]
    fragments.shift_all(deltas)
    for old, delta, new in zip(before, deltas, fragments.flatten_all(), strict=True):
        assert torch.equal(new, old + delta)


def test_half_precision_parameters_travel_as_float32_without_loss():
    fragments = Fragments(nn.Linear(7, 3).to(torch.bfloat16))
    flat = fragments.flatten(0)
    fragments.load(0, flat.clone())
    assert flat.dtype == torch.float32
    assert torch.equal(fragments.flatten(0), flat)


def test_frozen_parameters_are_left_out_and_shared_ones_count_once():
    model = nn.ModuleDict({"embedding": nn.Embedding(6, 4), "mid": nn.Linear(4, 4)})
    model["head"] = nn.Linear(4, 6, bias=False)
    model["head"].weight = model["embedding"].weight
    model["mid"].requires_grad_(False)
    fragments = Fragments(model)
    assert fragments.names == ("embedding",)
    assert fragments.sizes == (24,)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Linear(2, 2).requires_grad_(False), "without trainable"),
        (nn.ReLU(), "without trainable"),
        (nn.LazyLinear(2), "lazy"),
        (nn.Linear(2, 2, dtype=torch.complex64), "complex64"),
    ],
    ids=["frozen", "empty", "lazy", "complex"],
)
def test_what_cannot_be_trained_is_refused(model: nn.Module, reason: str):
    with pytest.raises(ValueError, match=reason):
        Fragments(model)


def test_what_has_no_elements_is_left_out():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "none": nn.Module(), "b": nn.Linear(2, 2)})
    model["none"].weight = nn.Parameter(torch.empty(0, 3))
    model["b"].more = nn.Parameter(torch.empty(0))
    fragments = Fragments(model)
    assert (fragments.names, fragments.sizes) == (("a", "b"), (6, 6))
    fragments.load_all(fragments.flatten_all())


def test_copies_keep_every_bit_of_every_dtype():
    model = nn.Linear(3, 3, dtype=torch.float64)
    fragments = Fragments(model)
    before = model.weight.detach().clone()
    copies = fragments.copies()
    fragments.load_all(fragments.flatten_all())  # rounded to float32
    assert not torch.equal(model.weight, before)
    fragments.put_back(copies)
    assert torch.equal(model.weight, before)


class Two(nn.Module):
    """Two parameters that are given."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)


def test_two_objects_on_one_memory_are_refused_and_neighbours_are_not():
    whole = torch.randn(4, 4)
    for other in (whole, whole.t(), whole[2:]):
        with pytest.raises(ValueError, match="two objects on one memory: tie them by using one"):
            Fragments(Two(whole, other))
    assert Fragments(Two(whole[:2], whole[2:])).sizes == (16,)
    with pytest.raises(ValueError, match="expanded parameter: first"):
        Fragments(Two(torch.zeros(1).expand(5), whole))


def test_what_peers_would_refuse_is_refused():
    with pytest.raises(ValueError, match=r"model of 1025 fragments \(limit 1024\)"):
        Fragments(nn.Sequential(*(nn.Linear(1, 1) for _ in range(1025))))
    long = nn.ModuleDict({"n" * 300: nn.Linear(1, 1)})
    with pytest.raises(ValueError, match="fragment with a name of 300 characters"):
        Fragments(long)
    with pytest.raises(ValueError, match="parameter without values of its own: second"):
        Fragments(Two(torch.zeros(2), torch.zeros(2, device="meta")))
    assert Fragments(nn.Linear(2, 2, device="meta")).sizes == (6,), "a model of shapes only"


def test_nothing_is_written_when_one_shape_is_wrong():
    fragments = Fragments(Nested())
    before = fragments.flatten_all()
    wrong = [torch.zeros(n) for n in fragments.sizes]
    wrong[-1] = torch.zeros(1)
    with pytest.raises(ValueError, match="fragment head"):
        fragments.load_all(wrong)
    with pytest.raises(ValueError, match="7 given"):
        fragments.shift_all(wrong[1:])
    assert all(map(torch.equal, fragments.flatten_all(), before))


def test_the_architecture_hash_sees_shapes_names_dimensions_and_frozenness_but_no_values():
    reference = Fragments(Transformer(CONFIG, seed=0)).architecture
    assert Fragments(Transformer(CONFIG, seed=1)).architecture == reference
    heads = TransformerConfig(dim=16, num_layers=3, num_heads=4, context=8, vocab_size=11)
    frozen = Transformer(CONFIG)
    frozen.head.requires_grad_(False)
    renamed = Transformer(CONFIG)
    renamed.output = renamed.head
    del renamed.head
    others = {Fragments(m).architecture for m in (Transformer(heads), frozen, renamed)}
    assert len(others) == 3
    assert reference not in others
    assert len(reference) == 32
