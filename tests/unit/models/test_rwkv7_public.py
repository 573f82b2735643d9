"""The public `rwkv` package and ours compute the same from the same weights."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config

LENGTH = 77

SHAPES = [
    Rwkv7Config(dim=128, num_layers=3, vocab_size=97),
    Rwkv7Config(dim=96, num_layers=2, head_size=32, vocab_size=50, hidden=200, gate_rank=24),
]


def stirred(config: Rwkv7Config) -> tuple[Rwkv7, list[int]]:
    """A model in which everything matters, and a text."""
    model = Rwkv7(config, seed=4)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            wide = parameter.dim() == 2 and parameter.shape[0] > config.num_heads
            parameter.add_(0.3 * noise / (parameter.shape[-1] ** 0.5 if wide else 1.0))
    text = torch.randint(0, config.vocab_size, (LENGTH,), generator=generator)
    return model, text.tolist()


@pytest.mark.parametrize("config", SHAPES, ids=["heads of 64", "odd dimensions"])
def test_same_weights_give_the_same_logits_as_in_the_public_package(
    config: Rwkv7Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {"V7_ON": "1", "JIT_ON": "0", "CUDA_ON": "0"}.items():
        monkeypatch.setenv(f"RWKV_{name}", value)  # read while it is imported
    model, text = stirred(config)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a package that is not ours
        from rwkv.model import RWKV

        public = RWKV(model=str(tmp_path / "weights"), strategy="cpu fp32")
        expected, _ = public.forward(text, None, full_output=True)
    with torch.no_grad():
        in_chunks, _ = model.read(torch.tensor([text]))
        by_token = []
        state = None
        for token in text:
            logits, state = model.read(torch.tensor([[token]]), state)
            by_token.append(logits[0, 0])
    assert expected.shape == (LENGTH, config.vocab_size)
    assert expected.std() > 0.1, "nothing to compare"
    torch.testing.assert_close(in_chunks[0], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.stack(by_token), expected, atol=1e-4, rtol=1e-4)
