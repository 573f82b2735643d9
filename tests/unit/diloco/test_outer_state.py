from dataclasses import replace

import pytest
import torch

from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import (
    SMALLEST,
    FragmentState,
    OuterState,
    fragment_leaf,
    genesis,
    state_digest,
)
from neuroswarm.values import NodeId


def some_state() -> OuterState:
    return genesis(
        Rules(), b"a" * 32, [("head", torch.arange(5.0)), ("body", -torch.arange(7.0) - 1)]
    )


def changed(state: OuterState, what: str) -> OuterState:
    head, body = state.fragments
    first = head.params.clone()
    first[3] += 1e-6
    return {
        "round": lambda: replace(state, round=1),
        "rules": lambda: replace(state, rules=Rules(outer_lr=0.6)),
        "architecture": lambda: replace(state, architecture=b"b" * 32),
        "applied": lambda: replace(state, applied={NodeId(b"n" * 20): ((0, b"c" * 32),)}),
        "params": lambda: replace(state, fragments=(replace(head, params=first), body)),
        "momentum": lambda: replace(state, fragments=(replace(head, momentum=first), body)),
        "name": lambda: replace(state, fragments=(replace(head, name="hea"), body)),
        "order": lambda: replace(state, fragments=(body, head)),
    }[what]()


@pytest.mark.parametrize(
    "what", ["round", "rules", "architecture", "applied", "params", "momentum", "name", "order"]
)
def test_the_digest_covers(what: str):
    state = some_state()
    assert changed(state, what).digest != state.digest


def test_equal_states_have_equal_digests():
    assert some_state().digest == some_state().digest
    assert len(some_state().digest) == 32


def test_the_digest_of_the_simplest_state_never_changes():
    state = genesis(Rules(), bytes(32), [("only", torch.tensor([1.0, -2.0]))])
    assert state.digest.hex()[:32] == "7459808e11c4dd7d20e66b5d95bbd9cc"


def test_a_downloader_can_check_each_fragment_and_then_the_whole():
    state = some_state()
    leaves = [fragment_leaf(fragment) for fragment in state.fragments]
    assert leaves[0] == state.fragments[0].leaf
    assert leaves[0] != leaves[1]
    rules = state.rules.to_bytes()
    assert state_digest(0, leaves, rules, state.architecture, state.applied) == state.digest


def test_genesis_copies_and_cleans_its_parameters():
    values = torch.tensor([1.0, -0.0, SMALLEST / 2, -1e-42, SMALLEST])
    state = genesis(Rules(), bytes(32), [("only", values)])
    assert state.params[0].tolist() == [1.0, 0.0, 0.0, 0.0, SMALLEST]
    assert not bool(torch.signbit(state.params[0]).any())
    assert values[2] == SMALLEST / 2
    values[0] = 9
    assert float(state.params[0][0]) == 1.0
    assert state.num_params == 5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_genesis_refuses_parameters_that_are_not_finite(bad: float):
    with pytest.raises(ValueError, match="finite"):
        genesis(Rules(), bytes(32), [("only", torch.tensor([bad]))])


@pytest.mark.parametrize(
    ("params", "momentum"),
    [
        (torch.zeros(3).double(), torch.zeros(3)),
        (torch.zeros(3, 1), torch.zeros(3)),
        (torch.zeros(6)[::2], torch.zeros(3)),
        (torch.zeros(3), torch.zeros(4)),
    ],
    ids=["float64", "two dimensions", "strided", "sizes"],
)
def test_fragments_of_another_form_are_refused(params: torch.Tensor, momentum: torch.Tensor):
    with pytest.raises(ValueError, match="fragment only"):
        FragmentState("only", params, momentum)
