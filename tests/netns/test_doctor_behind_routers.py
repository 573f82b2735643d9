"""What the doctor says behind a router: which kind of translation, and that nobody calls back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from netns_lab import MASQUERADE, SYMMETRIC, Lab, Machine, find_obstacle, lab, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two public nodes that run."""
    if why := find_obstacle():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("net")
    text = folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    with lab(folder) as made:
        nodes = [made.public("one"), made.public("two")]
        for node in nodes:
            node.start_node(text, *nodes)
        wait_for(lambda: all(node.status() for node in nodes), *nodes)
        yield made


def ask_doctor(machine: Machine, net: Lab) -> dict[str, dict[str, Any]]:
    """The findings by check; of peers the last one."""
    command = ["ip", "netns", "exec", machine.namespace, sys.executable, "-m", "neuroswarm"]
    command += ["doctor", "--quick", "--json", "--state-dir", str(machine.folder)]
    for name in ("one", "two"):
        command += ["--tracker", f"http://{net.machines[name].address}:7101"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["check"]: row for row in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize(
    ("name", "nat", "said"),
    [
        ("anna", MASQUERADE, "the same port for every peer"),
        ("bert", SYMMETRIC, "another port for every peer (symmetric)"),
    ],
)
def test_kinds_of_translation(net: Lab, name: str, nat: str, said: str):
    inside = net.router(name, nat)
    found = ask_doctor(inside, net)
    router = net.machines[f"{name}-router"].address
    assert found["nat"]["level"] == "warn"
    assert f"others see {router}; {said}" in found["nat"]["said"]
    assert "forward" in found["nat"]["fix"]
    assert found["peers"]["level"] == "ok"
    assert found["reachable"]["level"] == "warn"
    assert "does not reach it" in found["reachable"]["said"]


def test_a_public_machine(net: Lab):
    found = ask_doctor(net.public("three"), net)
    assert found["nat"]["level"] == "ok"
    assert found["reachable"]["level"] == "ok"
    assert "called back by" in found["reachable"]["said"]
