"""A user's function makes the model; whatever is wrong with it is said in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from neuroswarm.errors import ConfigError
from neuroswarm.models.user_factory import call_factory

OFFERED = {"vocab_size": 11, "context": 8, "seed": 5}

SOURCE = """
import torch
from torch import nn

def plain():
    return nn.Linear(2, 3)

def declared(vocab_size, *, seed, width=4):
    model = nn.Embedding(vocab_size, width)
    model.seed = seed
    return model

def with_loss():
    return nn.Linear(2, 3), lambda model, inputs, targets: model(inputs).sum()

class Net(nn.Linear):
    def __init__(self, context):
        super().__init__(context, 2)

class Family:
    make = staticmethod(plain)

number = 3

def raises():
    raise KeyError("k")

def leaves():
    raise SystemExit(2)

def needs(width):
    ...

def by_place(seed, /):
    ...

def a_list():
    return [1]

def a_class():
    return nn.ReLU

def bad_loss():
    return nn.ReLU(), 3
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "their_model.py").write_text(SOURCE)
    (tmp_path / "their_import.py").write_text("import nowhere_at_all\n")
    (tmp_path / "their_syntax.py").write_text("def (\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('this is no place for json')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("their_model", "their_import", "their_syntax"):
        sys.modules.pop(name, None)


def test_a_factory_is_given_what_it_declares():
    model, loss = call_factory("their_model:declared", OFFERED, seed=0)
    assert isinstance(model, nn.Embedding)
    assert (model.num_embeddings, model.embedding_dim, model.seed) == (11, 4, 5)
    assert loss is None


def test_classes_and_attributes_of_attributes_are_factories_too():
    model, _ = call_factory("their_model:Net", OFFERED, seed=0)
    assert isinstance(model, nn.Linear)
    assert model.in_features == 8
    assert isinstance(call_factory("their_model:Family.make", OFFERED, seed=0)[0], nn.Linear)


def test_a_pair_brings_its_own_loss():
    model, loss = call_factory("their_model:with_loss", OFFERED, seed=0)
    assert loss is not None
    assert loss(model, torch.zeros(1, 2), torch.zeros(1)).dim() == 0


def test_the_same_seed_makes_the_same_model_and_leaves_the_generator_alone():
    before = torch.default_generator.get_state()
    first, again, other = (
        call_factory("their_model:plain", OFFERED, seed=seed)[0].weight for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.default_generator.get_state(), before)


def test_a_file_here_takes_no_installed_modules_place():
    with pytest.raises(ConfigError, match=r"json has no 'make'"):
        call_factory("json:make", OFFERED, seed=0)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("no_such_module:make", "no module 'no_such_module'"),
        ("their_model.inner:make", "no module 'their_model.inner'"),
        ("their_import:make", "cannot import their_import: no module 'nowhere_at_all'"),
        ("their_syntax:make", "cannot import their_syntax: SyntaxError"),
        ("their_model:nothing", "their_model has no 'nothing'"),
        ("their_model:Family.nothing", "their_model.Family has no 'nothing'"),
        ("their_model:number", "their_model.number is of type int, and cannot be called"),
        ("their_model:raises", r"raised: KeyError: 'k' \(their_model.py:26\)"),
        ("their_model:leaves", "raised: SystemExit: 2"),
        ("their_model:needs", "needs 'width'; a factory is given vocab_size, context, seed"),
        ("their_model:by_place", "needs 'seed'"),
        ("their_model:a_list", "gave an object of type list"),
        ("their_model:a_class", "gave the class ReLU, not an object of it"),
        ("their_model:bad_loss", "the loss function that .* gave is of type int"),
    ],
)
def test_what_is_wrong_is_one_line(spec: str, said: str):
    with pytest.raises(ConfigError, match=said) as caught:
        call_factory(spec, OFFERED, seed=0)
    assert "\n" not in str(caught.value)
