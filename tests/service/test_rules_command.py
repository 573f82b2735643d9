"""`neuroswarm rules` against a node's sealed endpoint, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.diloco.amending import amend, read_amendment
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.rules_desk import RulesDesk
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.speaker import SWARM
from neuroswarm.values import Endpoint
from neuroswarm.web.server import Pages, WebServer
from neuroswarm.wire.control import RULES_PATH
from neuroswarm.wire.signed import Signed

NODE_ID = "ab" * 20


class Swarm:
    """A swarm of one that agrees at once to what its owner proposes."""

    def __init__(self, folder: Path) -> None:
        self.token = SwarmToken.new()
        self.owner, self.token_file = folder / "owner.key", folder / "token"
        self.token_file.write_text(self.token.text)
        owner = NodeKey.load_or_create(self.owner).public_key.hex()
        self.state: OuterState | None = genesis(
            Rules(owner=owner), bytes(32), [("body", torch.zeros(4))]
        )
        self.swarm_id = SWARM
        self.rival: int | None = None
        """Inner steps that another amendment brings, which is agreed instead."""

    @property
    def rules(self) -> Rules:
        assert self.state is not None
        return self.state.rules

    def propose(self, signed: Signed) -> None:
        assert self.state is not None
        read_amendment(signed, self.swarm_id, self.rules)
        after = amend(self.state, [signed], self.swarm_id, self.state)
        if self.rival is not None:
            changes = {"inner_steps": self.rival, "revision": after.rules.revision}
            after = replace(after, rules=self.rules.model_copy(update=changes))
        self.state = replace(after, round=self.state.round + 1)


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    return Swarm(tmp_path)


@pytest.fixture
async def url(swarm: Swarm) -> AsyncIterator[str]:
    desk = RulesDesk(swarm, sealer=Sealer(swarm.token.datagram_key), clock=FakeClock())
    pages = Pages(status=dict, peers=list, registry=CollectorRegistry())
    server = WebServer(Endpoint("127.0.0.1", 0), pages, sealed={RULES_PATH: desk.handle})
    async with server:
        yield f"http://127.0.0.1:{server.endpoint.port}"


async def rules(swarm: Swarm, url: str, *arguments: str) -> int:
    command = ["rules", *arguments, "--node", url, "--token-file", str(swarm.token_file)]
    return await asyncio.to_thread(run, command)


async def test_the_owner_changes_rules_expels_and_readmits(
    swarm: Swarm, url: str, capfd: pytest.CaptureFixture[str]
):
    key = ("--key", str(swarm.owner))
    assert await rules(swarm, url, "change", "inner_steps=77", *key, "--dry-run") == ExitCode.OK
    assert swarm.rules.revision == 0, "a dry run sends nothing"
    assert await rules(swarm, url, "change", "inner_steps=77", *key) == ExitCode.OK
    assert (swarm.rules.inner_steps, swarm.rules.revision) == (77, 1)
    assert "in force" in capfd.readouterr().out
    assert await rules(swarm, url, "expel", NODE_ID, *key) == ExitCode.OK
    assert swarm.rules.expelled == (NODE_ID,)
    assert await rules(swarm, url, "show") == ExitCode.OK
    assert NODE_ID in capfd.readouterr().out
    assert await rules(swarm, url, "readmit", NODE_ID, *key) == ExitCode.OK
    assert swarm.rules.expelled == ()


async def test_nobody_is_told_that_a_change_holds_when_another_was_agreed(
    swarm: Swarm, url: str, capfd: pytest.CaptureFixture[str]
):
    swarm.rival = 88
    code = await rules(swarm, url, "change", "inner_steps=77", "--key", str(swarm.owner))
    assert code == ExitCode.CONFIG
    captured = capfd.readouterr()
    assert "in force" not in captured.out
    assert "inner_steps 88 -> 77" in captured.err


async def test_strangers_and_others_than_the_owner_change_nothing(
    swarm: Swarm, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    other = tmp_path / "other.key"
    NodeKey.load_or_create(other)
    code = await rules(swarm, url, "change", "inner_steps=77", "--key", str(other))
    assert code == ExitCode.CONFIG
    assert "owner" in capfd.readouterr().err
    swarm.token_file.write_text(SwarmToken.new().text)
    assert await rules(swarm, url, "show") == ExitCode.AUTH
    assert swarm.rules.revision == 0


async def test_a_schedule_that_would_never_fall_is_refused(
    swarm: Swarm, url: str, capfd: pytest.CaptureFixture[str]
):
    key = ("--key", str(swarm.owner))
    assert await rules(swarm, url, "change", "lr_schedule=cosine", *key) == ExitCode.CONFIG
    assert "never falls without schedule_rounds" in capfd.readouterr().err
    both = ("lr_schedule=cosine", "schedule_rounds=9")
    assert await rules(swarm, url, "change", *both, *key) == ExitCode.OK
    assert swarm.rules.schedule_rounds == 9
