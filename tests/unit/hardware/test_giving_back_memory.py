import psutil
import pytest
import torch

from neuroswarm.hardware.allocator import _find_trim, give_back_memory

MB = 1024 * 1024


def test_holes_between_blocks_that_live_on_go_back_to_the_system():
    if _find_trim() is None:
        pytest.skip("the C library has no malloc_trim")
    process = psutil.Process()
    blocks = [torch.ones(MB // 16) for _ in range(512)]  # of 256 KiB: the heap's, not mapped ones
    del blocks[::2]
    before = process.memory_info().rss
    give_back_memory()
    assert before - process.memory_info().rss > 32 * MB
    assert all(float(block[-1]) == 1.0 for block in blocks)
