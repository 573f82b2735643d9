"""The act of the test on real engines that goes by `neuroswarm deploy` alone.

From engines in no swarm to engines with no stack, each verb as a person would type it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab_engines import CALL_S, Engine, is_in_swarm, leave
from lab_nodes import WITHIN_S, Member, find_ready
from swarm_steps import NODE, STACK, VOLUME, Act, agree, now, require_clean_ends, tell

from neuroswarm.testing.waiting import wait_until

JOINING = re.compile(r"^ *neuroswarm deploy (join \S+ --join-token SWMTKN-\S+)$", re.MULTILINE)
"""What `init` says that the other machines are to type."""
OPEN = "\n[network]\nhttp_open = true\n"
"""Nodes tell `status` about themselves, on other machines too."""
ON_MACHINES = ("--resolve-image", "never")


class Operator:
    """Somebody with a folder, who types `neuroswarm deploy`."""

    def __init__(self, folder: Path) -> None:
        """A folder of nothing."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.folder = folder

    def type(self, engine: Engine, *words: str, code: int = 0) -> str:
        """Run a verb against an engine, and print it and what it says; the exit code must be so."""
        return self._type(engine, words, code).stdout

    def read_logs(self, engine: Engine, *flags: str) -> list[str]:
        """The lines of `logs`: nodes log to stderr, and docker keeps the two apart."""
        done = self._type(engine, ("logs", *flags), 0)
        return [line for line in (done.stderr + done.stdout).splitlines() if " | " in line]

    def read_status(self, engine: Engine) -> dict[str, dict[str, Any]]:
        """What `status` has of each machine, by its name."""
        done = self._run(engine, ("status", "--json"))
        assert done.returncode == 0, done.stderr
        return {row["machine"]: row for row in json.loads(done.stdout)["machines"]}

    def _type(
        self, engine: Engine, words: tuple[str, ...], code: int
    ) -> subprocess.CompletedProcess[str]:
        print(f"machine{engine.number}$ neuroswarm deploy {shlex.join(words)}", flush=True)  # noqa: T201
        done = self._run(engine, words)
        print(done.stderr + done.stdout, end="", flush=True)  # noqa: T201
        assert done.returncode == code, done.returncode
        return done

    def _run(self, engine: Engine, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "neuroswarm", "deploy", *words]
        around = {**os.environ, **engine.reach({}), "COLUMNS": "240"}
        return subprocess.run(
            command,
            env=around, cwd=self.folder, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=CALL_S,
        )  # fmt: skip


def verbs_act(act: Act) -> None:
    """init, join, label, deploy, status, logs, scale, update, remove."""
    tell("neuroswarm deploy: the same by its verbs")
    if not act.is_own:
        tell("not played: these engines are a swarm already, and not this test's own")
        return
    operator = Operator(act.lab.folder / "operator")
    found_fleet(act, operator)
    members = put_nodes(act, operator)
    members = let_in(act, operator, members)
    read_logs(act, operator)
    change_image(act, operator, members)
    end(act, operator)


def found_fleet(act: Act, operator: Operator) -> None:
    """Engines in no swarm become one; two of them are labelled, one of these to be left out."""
    for number in (1, 2, 3):
        leave(act.lab.start(number))
    first = act.manager
    operator.type(first, "init", "--advertise", "10.78.0.1", "--dry-run")
    operator.type(first, "init", "--advertise", "10.78.0.1", "--yes")
    again = operator.type(first, "init", "--yes")
    told = JOINING.search(again)
    assert told, again
    assert "kept" in again, again
    for engine in act.some(2, 3):
        operator.type(engine, *shlex.split(told[1]), "--yes")
        assert is_in_swarm(engine)
    operator.type(first, "label", "machine2", "--class", "desktop", "--yes")
    operator.type(first, "label", "machine3", "--class", "laptop", "--skip", "--yes")


def put_nodes(act: Act, operator: Operator) -> list[Member]:
    """A node on each machine but the one that is left out; `status` has what they say."""
    first = act.manager
    operator.type(first, "files", "--to", "fleet")
    settings = (act.files / "node.toml").read_text() + OPEN
    (operator.folder / "fleet" / "node.toml").write_text(settings)
    deploy = ("deploy", "--file", "fleet/stack.yml", "--image", act.first, *ON_MACHINES)
    operator.type(first, *deploy, "--dry-run")
    operator.type(first, *deploy, "--yes")
    members = find_ready(act.some(1, 2), NODE)
    agree(members)
    wait_for_rows(act, operator, {"machine1": 1, "machine2": 1})
    operator.type(first, "status")
    left_out = operator.read_status(first)["machine3"]
    assert not left_out["task"], left_out
    assert "skipped" in left_out["state"], left_out
    return members


def let_in(act: Act, operator: Operator, members: list[Member]) -> list[Member]:
    """The machine that was left out is let in, and trains with the others."""
    last = max(members[0].rounds())
    operator.type(act.manager, "label", "machine3", "--no-skip", "--yes")
    members = [*members, *find_ready(act.some(3), NODE)]
    agree(members, after=last)
    wait_for_rows(act, operator, {"machine1": 2, "machine2": 2, "machine3": 2})
    operator.type(act.manager, "status")
    return members


def wait_for_rows(act: Act, operator: Operator, peers: dict[str, int]) -> None:
    """Wait until these machines' nodes run, and `status` has round, digest and so many peers.

    A node takes part before docker has seen it healthy; until then it is "Starting", without logs.
    """

    def is_told() -> bool:
        rows = operator.read_status(act.manager)
        return all(
            rows[name]["task"].startswith("Running")
            and rows[name]["round"].isdecimal()
            and re.fullmatch("[0-9a-f]{8}", rows[name]["digest"])
            and rows[name]["peers"] == str(number)
            for name, number in peers.items()
        )

    wait_until(is_told, within_s=WITHIN_S, what=f"live peers in `deploy status`: {peers}")


def read_logs(act: Act, operator: Operator) -> None:
    """Logs of all nodes, of one, of the tracker; and there is no number to scale."""
    first = act.manager
    for flags in (("--node", "machine2", "--tail", "2"), ("--service", "tracker", "--tail", "2")):
        lines = operator.read_logs(first, *flags)
        assert 1 <= len(lines) <= 2, lines
    logged = operator.read_logs(first, "--since", "30m", "--tail", "1")
    for number in (1, 2, 3):
        assert any(f"@machine{number} " in line for line in logged), logged
    operator.type(first, "scale")
    operator.type(first, "scale", "5", code=2)


def change_image(act: Act, operator: Operator, members: list[Member]) -> None:
    """An update with states surviving, and back again."""
    update = ("update", "--image", act.second, *ON_MACHINES, "--delay", "10s", "--yes")
    members = watch_change(act, operator, members, lambda: operator.type(act.manager, *update))
    operator.type(act.manager, "status")
    rows = operator.read_status(act.manager)
    assert {row["image"] for row in rows.values()} == {act.second}, rows
    back = ("update", "--rollback", "--yes")
    watch_change(act, operator, members, lambda: operator.type(act.manager, *back))
    rows = operator.read_status(act.manager)
    assert {row["image"] for row in rows.values()} == {act.first}, rows


def watch_change(
    act: Act, operator: Operator, members: list[Member], change: Callable[[], object]
) -> list[Member]:
    """Every container is another one afterwards, every node the same, and they agree."""
    before = {member.engine.number: member.status() for member in members}
    change()
    renewed = find_ready(act.some(1, 2, 3), NODE)
    assert not {m.container for m in members} & {m.container for m in renewed}
    for member in renewed:
        was, is_ = before[member.engine.number], member.status()
        assert (is_["node_id"], True) == (was["node_id"], is_["round"] >= was["round"]), (was, is_)
    agree(renewed, after=max(status["round"] for status in before.values()))
    wait_for_rows(act, operator, {"machine1": 2, "machine2": 2, "machine3": 2})
    return renewed


def end(act: Act, operator: Operator) -> None:
    """The stack ends, all containers with 0; states stay until they are to go, on each machine."""
    engines = act.some(1, 2, 3)
    since = now(act.manager)
    operator.type(act.manager, "remove", "--yes")
    for engine in engines:
        wait_until(
            lambda engine=engine: not engine.docker("ps", "--all", "--quiet"),
            within_s=WITHIN_S,
            what=f"the end of the containers of machine{engine.number}",
        )
    require_clean_ends(engines, since)
    assert VOLUME in act.manager.docker("volume", "ls", "--quiet")
    operator.type(act.manager, "remove", "--volumes", "--dry-run")
    operator.type(act.manager, "remove", "--volumes", "--confirm", "wrong", code=70)
    operator.type(act.manager, "remove", "--volumes", "--confirm", STACK)
    assert VOLUME not in act.manager.docker("volume", "ls", "--quiet")
    for engine in act.some(2, 3):
        engine.docker("volume", "rm", VOLUME)
    operator.type(act.manager, "status")
