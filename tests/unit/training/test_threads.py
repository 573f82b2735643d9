import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from neuroswarm.training.threads import NICENESS, choose_num_threads, run_beside, stand_back


def quota(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", ["100000 100000\n", "50000 100000\n"], ids=["one", "half"])
def test_a_container_with_one_processor_gets_one_thread(tmp_path: Path, text: str):
    assert choose_num_threads(64, quota_file=quota(tmp_path, text)) == 1


def test_the_limit_of_the_user_holds(tmp_path: Path):
    assert choose_num_threads(1, quota_file=quota(tmp_path, "max 100000\n")) == 1


def test_without_quota_the_cores_decide(tmp_path: Path):
    unlimited = choose_num_threads(64, quota_file=quota(tmp_path, "max 100000\n"))
    assert 1 <= unlimited <= 64
    assert choose_num_threads(64, quota_file=tmp_path / "missing") == unlimited


async def test_work_beside_the_training_uses_one_thread():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert await asyncio.to_thread(torch.get_num_threads) == 2  # what is new takes that over
        assert await run_beside(torch.get_num_threads) == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_only_the_thread_that_trains_stands_back():
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def stand_back_here() -> int:
        stand_back()
        return niceness()

    before = niceness()
    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(stand_back_here).result() == min(19, before + NICENESS)
    assert niceness() == before
