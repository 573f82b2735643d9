"""A state downloaded over real gRPC, with a donor that ends in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from neuroswarm.clock import SystemClock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import PeerError
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import piece_crew
from neuroswarm.transfer.donor import StateDonor
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.values import Endpoint, NodeId

TOKEN = SwarmToken(bytes(range(32)))
FREE = Endpoint("127.0.0.1", 0)
ARCHITECTURE = bytes(range(32))
SHAPE = (("body", 1_000_000), ("head", 3))
NUM_BYTES = 8 * 1_000_003


def make_state() -> OuterState:
    source = torch.Generator().manual_seed(0)
    named = [(name, torch.randn(size, generator=source)) for name, size in SHAPE]
    return genesis(Rules(), ARCHITECTURE, named)


@pytest.mark.parametrize("is_one_stopped", [False, True], ids=["all stay", "one stops"])
async def test_a_state_comes_whole_from_three_donors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_stopped: bool
):
    monkeypatch.setattr(piece_crew, "STALL_S", 2.0)
    state, clock = make_state(), SystemClock()
    ends = [GrpcTransport(issue(TOKEN, NodeKey.generate()), FREE) for _ in range(4)]
    *donor_ends, asker = ends
    limit = RoundConfig(max_state_upload_mbit=20.0)
    donors = [StateDonor(end, lambda: (state,), limit, clock=clock) for end in donor_ends]
    for end in ends:
        await end.start()
    blamed: list[tuple[NodeId, PeerError]] = []
    downloader = StateDownloader(
        asker,
        ARCHITECTURE,
        SHAPE,
        folder=tmp_path / "incoming",
        blame=lambda peer, error: blamed.append((peer, error)),
        clock=clock,
    )
    addresses = [end.address for end in donor_ends]
    work = asyncio.ensure_future(downloader.fetch(state.digest, lambda: addresses))
    try:
        if is_one_stopped:
            await until(lambda: donors[0].bytes_given >= NUM_BYTES / 8)
            await donor_ends[0].stop()
        found = await work
    finally:
        for end in ends:
            await end.stop()
    assert found.digest == state.digest
    assert downloader.bytes_fetched <= 1.2 * NUM_BYTES
    assert all(donor.bytes_given for donor in donors)
    assert not blamed
