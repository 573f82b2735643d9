"""Real nodes through the command line: one has the shards, the other only what describes them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_S = 120


@contextmanager
def running(state: Path, data: Path, *trackers: str) -> Iterator[str]:
    """A node's process; gives where it says that it is."""
    command = [sys.executable, "-m", "neuroswarm", *node_arguments(state, data, trackers)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    log = state.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, env=environment)
    found: list[str] = []

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()
        found[:] = re.findall(r"others join with --tracker (http://\S+)", log.read_text())
        return bool(found)

    try:
        wait_until(is_up, within_s=DEADLINE_S, what="a node")
        yield found[0]
    finally:
        process.kill()
        process.wait()


def status(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/status", timeout=DEADLINE_S) as reply:
        return json.loads(reply.read())  # type: ignore[no-any-return]


@pytest.mark.timeout(300)
def test_a_node_fetches_the_shards_that_its_folder_describes_and_trains_on_them(tmp_path: Path):
    text, whole, small = (tmp_path / name for name in ("text", "whole", "small"))
    text.write_text("the quick brown fox jumps over the lazy dog. " * 70_000)
    assert run(["data", "prepare", str(text), "--out", str(whole), "--shard-mb", "1"]) == 0
    assert run(["data", "describe", str(whole), "--to", str(small)]) == 0
    with (
        running(tmp_path / "anna", whole) as anna,
        running(tmp_path / "bert", small, anna) as bert,
    ):

        def is_done() -> bool:
            told = status(bert)
            return told["shards"]["in_use"] == told["shards"]["of"] and told["round"] >= 2

        wait_until(is_done, within_s=DEADLINE_S, what="all shards in use, and two rounds")
        told = status(bert)
        assert told["shards"]["bytes_fetched_total"] == text.stat().st_size
        assert told["total_tokens_processed"] > 0
        wait_until(
            lambda: status(anna)["digest"] == status(bert)["digest"],
            within_s=DEADLINE_S,
            what="one state at both",
        )
    own = Path(told["shards"]["folder"])
    assert run(["data", "verify", str(own)]) == ExitCode.OK
    assert [path.name for path in small.iterdir()] == ["manifest.json"]
