import torch

from neuroswarm.models.flat_copy import concatenate, copy_together


def test_copies_are_equal_and_share_nothing_with_what_was_copied():
    source = {
        "a": torch.randn(3, 5),
        "step": torch.tensor(7.0),
        "b": torch.randn(4, 6).t(),
        "ids": torch.arange(5),
        "empty": torch.empty(0, 2),
        "half": torch.randn(3).to(torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }
    before = {name: tensor.clone() for name, tensor in source.items()}
    copies = copy_together(source)
    with torch.no_grad():
        for tensor in source.values():
            tensor.zero_()
    assert list(copies) == list(source)
    for name, copy in copies.items():
        assert torch.equal(copy, before[name])
        assert (copy.shape, copy.dtype) == (before[name].shape, before[name].dtype)
        assert copy.is_contiguous()
        assert not copy.requires_grad


def test_those_of_one_dtype_lie_together():
    copies = copy_together({str(i): torch.randn(10) for i in range(5)})
    assert len({copy.untyped_storage().data_ptr() for copy in copies.values()}) == 1


def test_a_single_tensor_is_copied_too():
    one = torch.ones(4)
    copy = concatenate([one])
    one.zero_()
    assert torch.equal(copy, torch.ones(4))
