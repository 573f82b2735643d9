from dataclasses import replace

import pytest
import torch
from swarm_of_values import BLOCK, SIZES, contribute, decoded_mean, honest_deltas, start

from neuroswarm.codecs.registry import codec_of
from neuroswarm.config.legality import LEGAL_METHODS
from neuroswarm.diloco import applied
from neuroswarm.diloco.outer import AgreedContribution, advance, outer_step, token_weights
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import (
    OuterHyperparameters,
    get_inner_steps,
    outer_hyperparameters,
)
from neuroswarm.diloco.state import SMALLEST, FragmentState, OuterState

PAIRS = [(codec, method) for codec, methods in LEGAL_METHODS.items() for method in methods]


def rules_for(codec: str, method: str, **more: object) -> Rules:
    # Half of the values are kept, so that contributions still have a direction in common.
    fields = {"codec_block": BLOCK, "topk_chunk": 16, "topk_kept": 8} | more
    return Rules.model_validate({"codec": codec, "aggregation_method": method} | fields)


def coded(rules: Rules, deltas: list[list[torch.Tensor]], round_: int = 0):
    codec = codec_of(rules)
    return [contribute(i, d, round_=round_, codec=codec) for i, d in enumerate(deltas)]


def honest(num_peers: int, seed: int = 1) -> list[AgreedContribution]:
    return [contribute(peer, deltas) for peer, deltas in enumerate(honest_deltas(num_peers, seed))]


def moved(before: OuterState, after: OuterState) -> torch.Tensor:
    return torch.cat([b - a for a, b in zip(after.params, before.params, strict=True)])


def flat(deltas: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(deltas)


def test_an_empty_set_advances_the_round_and_changes_nothing_else():
    state = start()
    outcome = advance(state, [])
    assert outcome.state.round == 1
    assert outcome.state.fragments is state.fragments
    assert outcome.state.applied == {}
    assert outcome.used == ()
    assert outcome.state.digest != state.digest


def test_a_set_of_one_is_applied_as_it_is():
    state, agreed = start(), honest(1)
    outcome = advance(state, agreed)
    for k in range(len(SIZES)):
        expected = state.params[k] - agreed[0].payloads[k].decode()
        assert torch.allclose(outcome.state.params[k], expected, atol=1e-7)
    assert outcome.used == (agreed[0].id,)
    assert outcome.method == "trimmed_mean f=0"


def test_two_or_three_contributions_are_averaged():
    for n in (2, 3):
        state, agreed = start(), honest(n)
        outcome = advance(state, agreed)
        for k in range(len(SIZES)):
            # Nesterov from no momentum: g + 0.5 g.
            expected = state.params[k] - 1.5 * decoded_mean(agreed, k)
            assert torch.allclose(outcome.state.params[k], expected, atol=1e-6)
        assert (outcome.num_byzantine, len(outcome.used)) == (0, n)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("bucket_size", [1, 2])
@pytest.mark.parametrize(("codec", "method"), PAIRS)
def test_the_order_of_arrival_does_not_matter(codec: str, method: str, n: int, bucket_size: int):
    rules = rules_for(codec, method, bucket_size=bucket_size)
    state, agreed = start(rules), coded(rules, honest_deltas(n))
    digest = advance(state, agreed).state.digest
    for shift in range(1, n):
        assert advance(state, agreed[shift:] + agreed[:shift]).state.digest == digest
    assert advance(state, agreed[::-1]).state.digest == digest


def test_neither_the_state_nor_the_contributions_are_written():
    state = advance(start(), honest(5)).state
    agreed = honest(5, seed=2)
    digest = replace(state).digest
    payloads = [p for c in agreed for p in c.payloads]
    copies = [(p.codes.clone(), p.scales.clone()) for p in payloads]
    outcome = advance(state, agreed)
    for fragment in outcome.state.fragments:
        fragment.params.mul_(0)
        fragment.momentum.mul_(0)
    fresh = [FragmentState(f.name, f.params, f.momentum) for f in state.fragments]
    assert replace(state, fragments=tuple(fresh)).digest == digest
    for payload, (codes, scales) in zip(payloads, copies, strict=True):
        assert torch.equal(payload.codes, codes)
        assert torch.equal(payload.scales, scales)


def test_the_whole_set_enters_the_table_of_applied_contributions():
    agreed = honest(5)
    deltas = honest_deltas(6)[5]
    agreed.append(contribute(5, [d * -100 for d in deltas]))
    outcome = advance(replace(start(), round=7), agreed)
    assert outcome.rejected == {agreed[5].id: "magnitude"}
    assert set(outcome.used) == {c.id for c in agreed[:5]}
    for contribution in agreed:
        assert outcome.state.applied[contribution.node_id] == ((7, contribution.id),)


def test_f_counts_the_nodes_of_the_last_sixteen_rounds():
    state = advance(start(), honest(8)).state
    agreed = [contribute(peer, d, round_=1) for peer, d in enumerate(honest_deltas(5, 2))]
    assert advance(state, agreed).num_byzantine == 2
    assert advance(replace(state, round=17), agreed).num_byzantine == 1
    assert len(applied.identities(state.applied, 1)) == 8


@pytest.mark.parametrize("amplification", [-1.0, -3.0, -50.0, -1e6])
@pytest.mark.parametrize("use_nnm", [False, True])
@pytest.mark.parametrize(("codec", "method"), [pair for pair in PAIRS if pair[1] != "mean"])
@pytest.mark.parametrize("n", [5, 8])
def test_an_amplified_negated_contribution_cannot_turn_the_step(
    n: int, codec: str, method: str, use_nnm: bool, amplification: float
):
    rules = rules_for(codec, method, use_nnm=use_nnm)
    state, deltas = start(rules), honest_deltas(n)
    sent = list(deltas)
    sent[2] = [d * amplification for d in deltas[2]]
    agreed = coded(rules, sent)
    step = moved(state, advance(state, agreed).state)
    others = torch.stack([flat(d) for i, d in enumerate(deltas) if i != 2])
    centre = others.mean(dim=0)
    least = 0.8 if codec == "int4" else 0.7  # what is not kept turns the step too
    assert float(step @ centre) > least * float(step.norm() * centre.norm())
    assert float(step.norm()) <= 1.5 * 1.5 * float(others.norm(dim=1).max())


@pytest.mark.parametrize("n", [2, 3])
def test_in_sets_of_two_or_three_a_hostile_contribution_has_a_bounded_norm(n: int):
    state, deltas = start(), honest_deltas(n)
    agreed = [contribute(peer, d) for peer, d in enumerate(deltas)]
    agreed[0] = contribute(0, [d * -1e9 for d in deltas[0]])
    step = moved(state, advance(state, agreed).state)
    assert float(step.norm()) <= 1.5 * 2.1 * max(float(flat(d).norm()) for d in deltas[1:])


def test_one_contribution_in_a_large_swarm_is_bounded_by_the_momentum():
    state = advance(start(), honest(8)).state
    ordinary = moved(start(), state).norm()
    lone = contribute(0, [d * -1e9 for d in honest_deltas(1, 3)[0]], round_=1)
    outcome = advance(state, [lone])
    assert outcome.method == "fallback median f=0"
    assert float(moved(state, outcome.state).norm()) <= 4.1 * float(ordinary)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("codec", "method", "fallback"),
    [
        ("int4", "trimmed_mean", "median"),
        ("int4", "multi_krum", "median"),
        ("topk", "multi_krum", "geometric_median"),
        ("topk", "centered_clipping", "geometric_median"),
    ],
)
@pytest.mark.parametrize("scaling", ["none", "down", "both", "clip"])
def test_the_fallback_bounds_norms_whatever_the_rules_say(
    scaling: str, codec: str, method: str, fallback: str, n: int
):
    rules = rules_for(codec, method, norm_scaling=scaling)
    state = advance(start(rules), coded(rules, honest_deltas(8))).state
    deltas = honest_deltas(n, 4)
    hostile = [[d * -1e9 for d in deltas[0]], *deltas[1:]]
    outcome = advance(state, coded(rules, hostile, round_=1))
    assert outcome.method == f"fallback {fallback} f={(n - 1) // 2}"
    assert float(moved(state, outcome.state).norm()) < 20 * float(flat(deltas[0]).norm())


def test_momentum_carries_the_last_step_on():
    state = advance(start(), honest(4)).state
    again = advance(state, honest(4))
    for k, fragment in enumerate(again.state.fragments):
        delta = fragment.momentum - 0.5 * state.fragments[k].momentum
        expected = state.params[k] - (delta + 0.5 * fragment.momentum)
        assert torch.allclose(fragment.params, expected, atol=1e-6)


def test_the_nesterov_step_is_that_of_torch():
    source = torch.Generator().manual_seed(0)
    fragment = FragmentState("one", torch.randn(50, generator=source), torch.zeros(50))
    parameter = fragment.params.clone().requires_grad_()
    optimiser = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(5):
        delta = torch.randn(50, generator=source)
        parameter.grad = delta.clone()
        optimiser.step()
        fragment = outer_step(fragment, delta, OuterHyperparameters(0.7, 0.9))
        assert torch.allclose(fragment.params, parameter.detach(), rtol=1e-5, atol=1e-6)


def test_small_momentum_and_parameters_become_zero():
    tiny = torch.tensor([SMALLEST / 2, -SMALLEST / 2, SMALLEST * 4, -0.0, 1e-42])
    result = outer_step(
        FragmentState("one", tiny, tiny), torch.zeros(5), OuterHyperparameters(1.0, 0.5)
    )
    assert result.momentum.tolist() == [0.0, 0.0, SMALLEST * 2, 0.0, 0.0]
    assert result.params.tolist() == [0.0, 0.0, SMALLEST * 3, 0.0, 0.0]
    assert not bool(torch.signbit(result.params).any() | torch.signbit(result.momentum).any())


def test_neither_of_two_contributions_of_one_node_counts():
    state, agreed = start(), honest(3)
    again = replace(agreed[0], id=bytes(31) + b"\x01", payloads=agreed[1].payloads)
    outcome = advance(state, [*agreed, again])
    assert outcome.state.digest == advance(state, agreed[1:]).state.digest
    assert outcome.rejected.keys() == {agreed[0].id, again.id}
    only = advance(state, [agreed[0], again])
    assert (only.used, only.state.round) == ((), state.round + 1)
    assert only.state.fragments == state.fragments


def test_sets_that_cannot_be_are_refused():
    state, agreed = start(), honest(2)
    with pytest.raises(ValueError, match="1 payloads"):
        advance(state, [replace(agreed[0], payloads=agreed[0].payloads[:1])])
    with pytest.raises(ValueError, match="fragment part0"):
        advance(state, [replace(agreed[0], payloads=agreed[0].payloads[::-1])])
    with pytest.raises(ValueError, match=r"blocks of 16.*block=32"):
        advance(start(Rules(codec_block=32)), agreed)


def test_claimed_tokens_weigh_the_mean_up_to_four_times_the_median():
    deltas = honest_deltas(3)
    claims = [10**15, 100, 50]
    agreed = [
        contribute(i, d, tokens=t) for i, (d, t) in enumerate(zip(deltas, claims, strict=True))
    ]
    assert token_weights(agreed) == [400.0, 100.0, 50.0]
    assert token_weights([replace(c, tokens=0) for c in agreed]) == [1.0, 1.0, 1.0]
    rules = Rules(codec_block=BLOCK, aggregation_method="mean", norm_scaling="none")
    state = start(rules)
    outcome = advance(state, agreed)
    rows = torch.stack([c.payloads[0].decode() for c in agreed])
    expected = (rows * torch.tensor([[400.0], [100.0], [50.0]])).sum(dim=0) / 550
    assert torch.allclose(state.params[0] - outcome.state.params[0], 1.5 * expected, atol=1e-6)


def test_outer_hyperparameters_follow_the_size_of_the_set():
    rules = Rules(outer_lr=0.7, outer_momentum=0.9)
    assert outer_hyperparameters(rules, 1) == OuterHyperparameters(1.0, 0.0)
    assert outer_hyperparameters(rules, 2) == OuterHyperparameters(1.0, 0.5)
    low = Rules(outer_momentum=0.2)
    assert outer_hyperparameters(low, 8) == OuterHyperparameters(1.0, 0.2)
    fixed = Rules(outer_lr=0.7, outer_momentum=0.9, auto_scale=False)
    assert outer_hyperparameters(fixed, 1) == OuterHyperparameters(0.7, 0.9)


@pytest.mark.parametrize(
    ("base", "peers", "auto_scale", "steps"),
    [
        (500, 1, True, 500),
        (500, 0, True, 500),
        (500, 10, True, 666),
        (500, 100, True, 833),
        (500, 1000, True, 1000),
        (500, 100_000, True, 1000),
        (500, 1000, False, 500),
        (30, 10, True, 50),
    ],
)
def test_inner_steps_grow_with_the_swarm(base: int, peers: int, auto_scale: bool, steps: int):
    rules = Rules(inner_steps=base, auto_scale=auto_scale)
    assert get_inner_steps(rules, peers) == steps


def test_buckets_are_drawn_anew_for_every_state_and_set():
    rules = rules_for("int4", "geometric_median", bucket_size=2, use_nnm=False)
    deltas = honest_deltas(6)
    agreed = coded(rules, deltas)
    without = rules_for("int4", "geometric_median", use_nnm=False)
    steps = [
        moved(state, advance(state, agreed).state)
        for state in (start(rules), replace(start(rules), round=1), start(without))
    ]
    assert not torch.equal(steps[0], steps[1])
    assert not torch.equal(steps[0], steps[2])
    others = [replace(c, id=bytes([9]) + c.id[1:]) for c in agreed]
    assert not torch.equal(steps[0], moved(start(rules), advance(start(rules), others).state))


def test_buckets_give_way_where_the_rule_could_not_bear_f():
    deltas = honest_deltas(8)  # f = 2: four buckets are too few
    for size in (2, 4):
        rules = rules_for("int4", "trimmed_mean", bucket_size=size)
        plain = rules_for("int4", "trimmed_mean")
        outcome = advance(start(rules), coded(rules, deltas))
        expected = advance(start(plain), coded(plain, deltas))
        assert outcome.method == "trimmed_mean f=2"
        assert torch.equal(outcome.state.params[0], expected.state.params[0])


def test_a_sparse_set_moves_only_what_it_holds():
    rules = Rules(codec="topk", topk_chunk=16, topk_kept=2)
    assert rules.aggregation_method == "geometric_median"
    state = start(rules)
    agreed = coded(rules, honest_deltas(1) * 4)
    outcome = advance(state, agreed)
    change = state.params[0] - outcome.state.params[0]
    assert torch.equal(change != 0, agreed[0].payloads[0].decode() != 0)


def test_payloads_of_another_codec_are_refused():
    dense, sparse = rules_for("int4", "mean"), rules_for("topk", "mean")
    with pytest.raises(ValueError, match="topk payload"):
        advance(start(dense), coded(sparse, honest_deltas(2)))
    with pytest.raises(ValueError, match="int4 payload"):
        advance(start(sparse), coded(dense, honest_deltas(2)))
