import dataclasses

import pytest
import torch

from neuroswarm.models.transformer import Transformer, TransformerConfig, _rotary, _rotate

SMALL = TransformerConfig(dim=16, num_layers=2, num_heads=2, context=12, vocab_size=11)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, SMALL.vocab_size, shape, generator=torch.Generator().manual_seed(3))


def test_logits_at_a_position_do_not_see_later_tokens():
    model = Transformer(SMALL)
    inputs = tokens(2, 12)
    changed = inputs.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % SMALL.vocab_size
    before, after = model(inputs), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_positions_matter():
    model = Transformer(SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    inputs = tokens(1, 6)
    swapped = inputs.clone()
    swapped[0, 0], swapped[0, 1] = inputs[0, 1], inputs[0, 0]
    assert inputs[0, 0] != inputs[0, 1]
    assert not torch.allclose(model(inputs)[0, -1], model(swapped)[0, -1], atol=1e-4)


def test_attention_depends_on_distance_not_on_place():
    """Rotary scores of a pair are the same wherever the pair stands."""
    config = TransformerConfig(dim=8, num_heads=1, context=32)
    cos, sin = _rotary(config)
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))

    def score(at_q: int, at_k: int) -> torch.Tensor:
        turned = [
            _rotate(vector.view(1, 1, 1, 8), (cos[at : at + 1], sin[at : at + 1])).flatten()
            for vector, at in ((q, at_q), (k, at_k))
        ]
        return turned[0] @ turned[1]

    torch.testing.assert_close(score(9, 4), score(25, 20))
    assert not torch.allclose(score(9, 4), score(9, 5))


def test_the_loss_is_the_cross_entropy_of_the_logits():
    model = Transformer(SMALL)
    inputs, targets = tokens(3, 5), tokens(3, 5).flip(0)
    picked = model(inputs).log_softmax(-1).gather(-1, targets[..., None])
    torch.testing.assert_close(model(inputs, targets), -picked.mean())


def test_a_new_model_knows_nothing_yet():
    model = Transformer(dataclasses.replace(SMALL, vocab_size=256, dim=64))
    loss = model(tokens(4, 12), tokens(4, 12)).item()
    assert loss == pytest.approx(torch.tensor(256.0).log().item(), abs=0.1)


def test_the_seed_decides_the_parameters():
    def values(seed: int) -> torch.Tensor:
        return torch.cat([p.flatten() for p in Transformer(SMALL, seed=seed).parameters()])

    torch.manual_seed(1)
    first = values(5)
    torch.manual_seed(2)
    assert torch.equal(first, values(5))
    assert not torch.equal(first, values(6))


def test_too_long_a_sequence_is_refused():
    with pytest.raises(ValueError, match="too many tokens: 13"):
        Transformer(SMALL)(tokens(1, 13))


@pytest.mark.parametrize(
    ("field", "value"), [("dim", 18), ("num_layers", 0), ("context", 0), ("hidden", -1)]
)
def test_impossible_dimensions_are_refused(field: str, value: int):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(SMALL, **{field: value})
