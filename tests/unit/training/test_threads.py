from pathlib import Path

import pytest

from neuroswarm.training.threads import choose_num_threads


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
