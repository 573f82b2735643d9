"""The process of a further device while it starts: it outlives its node no more than later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from neuroswarm.training.rank_process import RankProcess, command_for


def test_it_ends_with_the_node_although_it_still_imports(tmp_path: Path):
    """A module of the device's is replaced by one whose import never ends, as torch's nearly does.

    The node's end of the connection is closed by the kernel, as when it is killed.
    """
    module = tmp_path / "neuroswarm_slow_start.py"
    module.write_text(
        "import sys, types\n"
        "from neuroswarm.node import rank_start\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'neuroswarm.node.rank_main':\n"
        f"            open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        "            import threading\n"
        "            threading.Event().wait()\n"
        "sys.meta_path.insert(0, Slow())\n"
        "main = rank_start.main\n"
    )
    command = command_for("neuroswarm_slow_start")
    command = (*command[:-1], command[-1].replace("[", f'["{tmp_path}", ', 1))
    device = RankProcess(command, "cpu:1")
    process = device._process
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, "it ended before the node did"
    device.channel.close()
    assert process.wait(30) == 0


def test_it_starts_without_torch():
    """What it watches with is there before torch is."""
    text = "import sys; import neuroswarm.node.rank_start; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "False"
