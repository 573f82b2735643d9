import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from neuroswarm.hardware.processor import ProcessorFacts
from neuroswarm.training.threads import NICENESS, choose_num_threads, run_beside, stand_back


def quota(root: Path, text: str) -> Path:
    for name, content in {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": text}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize("text", ["100000 100000\n", "50000 100000\n"], ids=["one", "half"])
def test_a_container_with_one_processor_gets_one_thread(tmp_path: Path, text: str):
    assert choose_num_threads(64, quota(tmp_path, text)) == 1


def test_a_quota_is_rounded_down():
    cores = ProcessorFacts(num_usable=8, num_physical=8)
    assert replace(cores, quota=2.9).num_cores == 2
    assert replace(cores, quota=0.2).num_cores == 1
    assert replace(cores, num_physical=4).num_cores == 4
    assert replace(cores, num_usable=3).num_cores == 3


def test_the_limit_of_the_user_holds(tmp_path: Path):
    assert choose_num_threads(1, quota(tmp_path, "max 100000\n")) == 1


def test_without_quota_the_cores_decide(tmp_path: Path):
    unlimited = choose_num_threads(64, quota(tmp_path, "max 100000\n"))
    assert 1 <= unlimited <= 64
    assert choose_num_threads(64, tmp_path / "missing") == unlimited


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
