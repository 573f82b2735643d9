"""Frozen parameters are part of what nodes must have alike; trained ones are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.models import frozen_base
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.frozen_base import hash_base


def named() -> dict[str, Tensor]:
    return {
        "a": torch.arange(6, dtype=torch.float32).view(2, 3),
        "b": torch.arange(4, dtype=torch.bfloat16),
        "c": torch.tensor(3),
        "d": torch.empty(0),
    }


def test_the_order_of_names_does_not_count_and_everything_else_does():
    reference = hash_base(named().items())
    assert len(reference) == 32
    assert hash_base(reversed(named().items())) == reference
    first = named()["a"]
    others = [
        {**named(), "a": first + 1e-6},
        {**named(), "a": first.view(3, 2)},
        {**named(), "a": first.double()},
        {**named(), "e": torch.empty(0)},
        {"z" if name == "a" else name: tensor for name, tensor in named().items()},
    ]
    hashes = {hash_base(other.items()) for other in others}
    assert len(hashes) == len(others)
    assert reference not in hashes


def test_tensors_that_are_no_whole_blocks_hash_as_their_values():
    whole = torch.arange(12, dtype=torch.float32).view(3, 4)
    assert hash_base([("a", whole.t())]) == hash_base([("a", whole.t().contiguous())])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_size_of_the_pieces_does_not_count(monkeypatch: pytest.MonkeyPatch, size: int):
    reference = hash_base(named().items())
    monkeypatch.setattr(frozen_base, "PIECE_BYTES", size)
    assert hash_base(named().items()) == reference


def test_a_tensor_without_values_is_refused():
    with pytest.raises(ValueError, match="frozen parameter without values of its own: a"):
        hash_base([("a", torch.empty(2, device="meta"))])


def test_a_model_has_a_base_if_a_part_of_it_is_frozen():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    assert Fragments(model).base == b""
    model[0].requires_grad_(False)
    reference = Fragments(model)
    with torch.no_grad():
        model[1].weight.add_(1)  # trained: it differs from node to node
    assert Fragments(model).base == reference.base != b""
    with torch.no_grad():
        model[0].weight.add_(1)
    assert Fragments(model).base != reference.base
    assert Fragments(model).architecture == reference.architecture
