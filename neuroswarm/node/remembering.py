"""Keeps the peers that a node knows on its disk, and greets them when it starts again.

So it finds its swarm although every tracker and peer that it was given is gone. Refuses to believe
what it reads: a greeting that nobody answers is all that a wrong line costs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.clock import Clock
from neuroswarm.discovery.peers_file import (
    MAX_FILE_BYTES,
    MAX_KEPT,
    Acquaintance,
    decode_acquaintances,
    encode_acquaintances,
)
from neuroswarm.errors import CheckpointError
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.service import Service

logger = logging.getLogger(__name__)

LOOK_S = 5.0
"""Seconds between two looks whether other peers are known than on the disk."""

MIN_WRITE_S = 600.0
"""Seconds between two writes at least, but for the first and the last: flash wears out."""


class Rememberer(Service):
    """Reads the file, has its peers greeted, and writes it anew now and then and at the end.

    A file that cannot be read or written is said once; the node goes on without.
    """

    name = "remembered peers"

    def __init__(
        self, path: Path, *, peers: PeerTable, heartbeat: HeartbeatService, clock: Clock
    ) -> None:
        """Wire it up.

        Args:
            path: The file; its folder exists.
            peers: Who is known now.
            heartbeat: Greets those that were known before; started before this service.
            clock: Tells the time and waits.
        """
        super().__init__()
        self._path = path
        self._peers = peers
        self._heartbeat = heartbeat
        self._clock = clock
        self._known: list[Acquaintance] = []
        self._written: list[Acquaintance] = []
        self._wrote_at = float("-inf")
        self._has_complained = False
        self._one_writer = threading.Lock()

    @property
    def num_known(self) -> int:
        """Peers that are remembered."""
        return len(self._known)

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            self._known = await asyncio.to_thread(_read, self._path)
        except CheckpointError as error:
            self._complain(error)
        self._written = list(self._known)
        self._heartbeat.remember(self._known)
        stack.push_async_callback(self._write_last)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._keep(),)

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            self._known = self._collect()
            if self._clock.monotonic() - self._wrote_at >= MIN_WRITE_S:
                await self._write()

    async def _write(self) -> None:
        """Write the file if it would say something else."""
        wanted = self._known
        if wanted == self._written:
            return
        self._wrote_at = self._clock.monotonic()
        try:
            await asyncio.to_thread(self._replace_file, encode_acquaintances(wanted))
        except CheckpointError as error:
            self._complain(error)
        else:
            self._written = wanted

    def _replace_file(self, data: bytes) -> None:
        with (
            self._one_writer
        ):  # a write goes on in its thread although nobody waits for it any more
            replace_file(self._path, data)

    async def _write_last(self) -> None:
        self._known = self._collect()
        await self._write()

    def _collect(self) -> list[Acquaintance]:
        """The live peers, then those of former days, 64 in all."""
        live = {
            peer.node_id: peer.announced_endpoint
            for peer in self._peers.alive(self._clock.monotonic())
            if peer.is_proven_there and peer.announced_endpoint.port
        }
        former = [known for known in self._known if known.node_id not in live]
        return [*(Acquaintance(*item) for item in live.items()), *former][:MAX_KEPT]

    def _complain(self, error: CheckpointError) -> None:
        if not self._has_complained:
            self._has_complained = True
            logger.warning("peers are not remembered: %s", error)


def _read(path: Path) -> list[Acquaintance]:
    """What the file says; nothing if there is none. CheckpointError if it is damaged."""
    with translating("read", path):
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return []
    try:
        return decode_acquaintances(data)
    except CheckpointError as error:
        raise CheckpointError(f"cannot read {path}: {error} (it is written anew)") from error
