import dataclasses

import pytest
import torch

from neuroswarm.models.fragments import Fragments
from neuroswarm.models.rwkv7 import Rwkv7, count_parameters
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.rwkv7_weights import load_public, shape_of
from neuroswarm.models.wkv7 import wkv_by_steps

SMALL = Rwkv7Config(dim=16, num_layers=3, head_size=8, vocab_size=11)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, SMALL.vocab_size, shape, generator=torch.Generator().manual_seed(3))


def stirred(config: Rwkv7Config = SMALL, **arguments: object) -> Rwkv7:
    """A model in which everything matters: fresh ones have zeros in many places."""
    model = Rwkv7(config, **arguments)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def test_logits_at_a_position_do_not_see_later_tokens():
    model = stirred()
    inputs = tokens(2, 70)
    changed = inputs.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % SMALL.vocab_size
    before, after = model(inputs), model(changed)
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:])


def test_logits_see_tokens_of_long_ago():
    model = stirred()
    inputs = tokens(1, 70)
    changed = inputs.clone()
    changed[0, 0] = (changed[0, 0] + 1) % SMALL.vocab_size
    assert not torch.equal(model(inputs)[:, -1], model(changed)[:, -1])


@pytest.mark.parametrize("at", [1, 31, 32, 69])
def test_a_text_may_be_read_in_parts(at: int):
    model = stirred()
    inputs = tokens(2, 70)
    whole, after = model.read(inputs)
    first, between = model.read(inputs[:, :at])
    second, end = model.read(inputs[:, at:], between)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole, atol=1e-4, rtol=1e-4)
    for one, other in zip(after.blocks, end.blocks, strict=True):
        torch.testing.assert_close(one.wkv, other.wkv, atol=1e-4, rtol=1e-4)


def test_reading_token_by_token_equals_training_form():
    model = stirred()
    inputs = tokens(2, 45)
    state = None
    for at in range(inputs.shape[1]):
        logits, state = model.read(inputs[:, at : at + 1], state)
        torch.testing.assert_close(logits[:, 0], model(inputs)[:, at], atol=1e-4, rtol=1e-4)


def test_gradients_equal_those_of_a_loop_over_time():
    inputs, targets = tokens(2, 41), tokens(2, 41).flip(1)
    models = stirred().double(), stirred(wkv=wkv_by_steps).double()
    for model in models:
        model(inputs, targets).backward()
    for (name, one), other in zip(
        models[0].named_parameters(), models[1].parameters(), strict=True
    ):
        assert one.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, msg=lambda text: f"{name}: {text}")  # noqa: B023


def test_the_loss_is_the_cross_entropy_of_the_logits():
    model = stirred()
    inputs, targets = tokens(3, 5), tokens(3, 5).flip(0)
    picked = model(inputs).log_softmax(-1).gather(-1, targets[..., None])
    torch.testing.assert_close(model(inputs, targets), -picked.mean())


def test_a_new_model_knows_nothing_yet():
    model = Rwkv7(dataclasses.replace(SMALL, vocab_size=256, dim=64))
    loss = model(tokens(4, 12), tokens(4, 12)).item()
    assert loss == pytest.approx(torch.tensor(256.0).log().item(), abs=0.3)


def test_every_parameter_of_a_new_model_is_set_and_learns():
    model = Rwkv7(SMALL)
    for _ in range(3):  # what starts at zero hides others at first
        model(tokens(2, 20), tokens(2, 20).flip(1)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name


def test_the_seed_decides_the_parameters():
    def values(seed: int) -> torch.Tensor:
        return torch.cat([p.flatten() for p in Rwkv7(SMALL, seed=seed).parameters()])

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = values(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, values(5))
    assert not torch.equal(first, values(6))


def test_decays_start_between_slow_and_fast():
    model = Rwkv7(Rwkv7Config(dim=128, num_layers=2))
    bias = model.get_parameter("blocks.0.att.w0").flatten()
    # -6 + 0.5 and 0 + 0.5, each a head's zigzag of up to 2.5 more or less.
    assert bias.min().item() == pytest.approx(-8.0)
    assert bias.max().item() == pytest.approx(3.0)
    assert model.get_parameter("blocks.1.att.ln_x.weight").tolist() == [1.0] * 128


def test_each_block_is_a_fragment():
    fragments = Fragments(Rwkv7(SMALL))
    assert fragments.names == ("emb", "blocks.0", "blocks.1", "blocks.2", "ln_out", "head")
    assert sum(fragments.sizes) == count_parameters(SMALL)


def test_heads_are_part_of_the_architecture():
    wide = dataclasses.replace(SMALL, head_size=16)
    assert Fragments(Rwkv7(SMALL)).architecture == Fragments(Rwkv7(SMALL, seed=1)).architecture
    assert Fragments(Rwkv7(SMALL)).architecture != Fragments(Rwkv7(wide)).architecture


def test_weight_decay_is_for_large_matrices_alone():
    model = Rwkv7(SMALL)
    decaying = {name.partition("blocks.1.")[2] for name, _ in model.named_parameters()
                if name.startswith("blocks.1.") and model.decays(name)}  # fmt: skip
    layers = {"att.receptance", "att.key", "att.value", "att.output", "ffn.key", "ffn.value"}
    assert decaying == {f"{layer}.weight" for layer in layers}
    assert model.decays("emb.weight")
    assert model.decays("head.weight")


def test_a_state_of_another_batch_is_refused():
    model = Rwkv7(SMALL)
    with pytest.raises(ValueError, match="needs 3 blocks for batches of 2"):
        model.read(tokens(2, 4), model.start(1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim", 20), ("dim", 0), ("num_layers", 0), ("head_size", 1), ("vocab_size", 0),
        ("hidden", -1), ("gate_rank", -1),
    ],
)  # fmt: skip
def test_impossible_dimensions_are_refused(field: str, value: int):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(SMALL, **{field: value})


def test_a_half_precision_model_keeps_its_states_in_float32():
    model = Rwkv7(SMALL).to(torch.bfloat16)
    logits, state = model.read(tokens(1, 40))
    assert logits.dtype == torch.bfloat16
    assert {block.wkv.dtype for block in state.blocks} == {torch.float32}


def test_dimensions_are_found_in_a_checkpoint():
    odd = dataclasses.replace(
        SMALL, hidden=40, decay_rank=5, rate_rank=6, value_rank=7, gate_rank=9
    )
    assert shape_of(Rwkv7(odd).state_dict()) == odd


def test_a_public_checkpoint_is_taken_over():
    source = stirred()
    public = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    for name in ("v0", "v1", "v2"):  # there, though nobody reads them
        public[f"blocks.0.att.{name}"] = public[f"blocks.1.att.{name}"]
    public["blocks.1.att.w0"] = public["blocks.1.att.w0"].flatten()
    target = Rwkv7(shape_of(public), seed=9)
    load_public(target, public)
    assert torch.equal(source(tokens(1, 9)), target(tokens(1, 9)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ln_out.weight": None}, "missing: ln_out.weight"),
        ({"more": torch.ones(2)}, "unknown: more"),
        ({"ln_out.weight": torch.ones(3)}, r"of another shape: ln_out.weight \(3,\)"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_another_checkpoint_is_refused_and_changes_nothing(
    change: dict[str, torch.Tensor | None], reason: str
):
    model = Rwkv7(SMALL)
    tensors = {k: v for k, v in {**stirred().state_dict(), **change}.items() if v is not None}
    before = Fragments(model).flatten_all()
    with pytest.raises(ValueError, match=reason):
        load_public(model, tensors)
    assert all(map(torch.equal, before, Fragments(model).flatten_all()))


def test_what_is_no_checkpoint_says_what_is_missing():
    with pytest.raises(ValueError, match=r"no checkpoint of RWKV-7: 'emb.weight'"):
        shape_of({"wte": torch.ones(2)})
