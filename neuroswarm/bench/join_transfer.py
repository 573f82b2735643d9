"""The transfer alone: three donors and a joiner on a slow link, in one process over real gRPC.

For states so large that four nodes which train them do not fit into the memory of one machine.
Knows nothing of rounds.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from neuroswarm.bench.join_link import LimitedRpc
from neuroswarm.clock import SystemClock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.pieces import shape_of
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import PeerError
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.transfer.donor import StateDonor
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.values import Endpoint, NodeId

NUM_DONORS = 3
NUM_FRAGMENTS = 16
LOOK_S = 0.05
ARCHITECTURE = bytes(range(32))


@dataclass(frozen=True, slots=True)
class Transfer:
    """What was measured."""

    state_bytes: int
    fetched_bytes: int
    physical_s: float
    """State bytes over the bandwidth."""
    seconds: float
    """From the question for the manifest until the state is checked and in memory."""
    num_donors: int
    """Donors that gave something."""


def measure_transfer(num_params: int, mbit: float, *, kills_donor: bool) -> Transfer:
    """Download a state of so many parameters over a link of so many Mbit/s.

    Args:
        num_params: Of the state; 8 bytes each, which are held twice.
        mbit: Of the joiner's link.
        kills_donor: Whether one donor's transport is stopped when half of the state is there.
    """
    with tempfile.TemporaryDirectory(prefix="neuroswarm-transfer-") as folder:
        return asyncio.run(_measure(num_params, mbit, kills_donor, Path(folder)))


async def _measure(num_params: int, mbit: float, kills_donor: bool, folder: Path) -> Transfer:
    clock = SystemClock()
    state = await asyncio.to_thread(_make_state, num_params)
    async with AsyncExitStack() as stack:
        ends = [_make_end() for _ in range(NUM_DONORS)]
        donors = [StateDonor(end, lambda: (state,), RoundConfig(), clock=clock) for end in ends]
        asker = _make_end()
        for end in (*ends, asker):
            await stack.enter_async_context(end)
        downloader = StateDownloader(
            LimitedRpc(asker, mbit * 1e6 / 8, clock),
            ARCHITECTURE,
            shape_of([f.name for f in state.fragments], [f.num_params for f in state.fragments]),
            folder=folder / "incoming",
            blame=_refuse_blame,
            clock=clock,
        )
        addresses = [end.address for end in ends]
        size = 8 * state.num_params

        async def disturb() -> None:
            while kills_donor and sum(donor.bytes_given for donor in donors) < size / 2:
                await clock.sleep(LOOK_S)
            if kills_donor:
                await ends[0].stop()

        began_at = clock.monotonic()
        found, _ = await asyncio.gather(
            downloader.fetch(state.digest, lambda: addresses), disturb()
        )
        seconds = clock.monotonic() - began_at
        assert found.digest == state.digest, "every piece was checked"
        return Transfer(
            size,
            downloader.bytes_fetched,
            8 * size / (1e6 * mbit),
            seconds,
            sum(donor.bytes_given > 0 for donor in donors),
        )


def _make_state(num_params: int) -> OuterState:
    source = torch.Generator().manual_seed(0)
    size = num_params // NUM_FRAGMENTS
    fragments = tuple(
        FragmentState(
            f"part{k}",
            torch.rand(size, generator=source),
            torch.rand(size, generator=source),
        )
        for k in range(NUM_FRAGMENTS)
    )
    state = OuterState(0, fragments, {}, Rules(), ARCHITECTURE)
    assert len(state.digest) == len(ARCHITECTURE), "hashed now, not while it is measured"
    return state


def _make_end() -> GrpcTransport:
    return GrpcTransport(issue(SwarmToken(bytes(32)), NodeKey.generate()), Endpoint("127.0.0.1", 0))


def _refuse_blame(peer: NodeId, error: PeerError) -> None:
    raise AssertionError(f"honest donor {peer} blamed: {error}")
