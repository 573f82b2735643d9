import pytest
import torch
from torch import Tensor

from neuroswarm.models.wkv7 import MIN_LOG_DECAY, Wkv, wkv_by_steps, wkv_in_chunks

FORMS = pytest.mark.parametrize("wkv", [wkv_by_steps, wkv_in_chunks], ids=["steps", "chunks"])


def zeros(length: int, size: int = 4) -> list[Tensor]:
    return [torch.zeros(1, length, 1, size) for _ in range(6)] + [torch.zeros(1, 1, size, size)]


@FORMS
def test_a_value_is_found_under_its_key_until_it_decays(wkv: Wkv):
    r, log_w, k, v, a, b, state = zeros(40)
    k[0, 0, 0, 1] = 1.0
    v[0, 0, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    r[0, :, 0, 1] = 1.0
    log_w[...] = MIN_LOG_DECAY
    y, _ = wkv(r, log_w, k, v, a, b, state)
    for at in (0, 1, 33, 39):
        torch.testing.assert_close(y[0, at, 0], v[0, 0, 0] * torch.tensor(MIN_LOG_DECAY * at).exp())


@FORMS
def test_a_value_is_replaced_under_a_key_that_is_written_again(wkv: Wkv):
    r, log_w, k, v, a, b, state = zeros(36)
    k[0, :, 0, 2] = 1.0
    r[0, :, 0, 2] = 1.0
    a[0, :, 0, 2] = -1.0
    b[0, :, 0, 2] = 1.0
    v[...] = torch.randn(v.shape, generator=torch.Generator().manual_seed(1))
    y, last = wkv(r, log_w, k, v, a, b, state)
    torch.testing.assert_close(y, v)
    torch.testing.assert_close(last[0, 0, :, 2], v[0, -1, 0])


@FORMS
def test_the_state_goes_on_where_it_was(wkv: Wkv):
    inputs = zeros(5)
    inputs[-1] = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    _, last = wkv(*inputs)
    torch.testing.assert_close(last, inputs[-1])


def test_shapes_that_do_not_fit_are_refused():
    inputs = zeros(5)
    with pytest.raises(ValueError, match=r"state of shape \(1, 1, 4, 4\) \(needs \(1, 1, 8, 8\)\)"):
        wkv_in_chunks(*zeros(5, size=8)[:6], inputs[-1])
    with pytest.raises(ValueError, match="shapes differ"):
        wkv_in_chunks(*inputs[:5], zeros(4)[5], inputs[-1])
    with pytest.raises(ValueError, match="T >= 1"):
        wkv_in_chunks(*(tensor[:, :0] for tensor in inputs[:6]), inputs[-1])
