"""Donors of shards, honest and other, and one who fetches from them, on a network in memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config.sections import DataConfig
from neuroswarm.errors import DataError, PeerError
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import Speaker
from neuroswarm.testing.waiting import until
from neuroswarm.transfer import donor_pool, shard_crew, shard_sightings
from neuroswarm.transfer.shard_crew import ShardCrew
from neuroswarm.transfer.shard_donor import ShardDonor
from neuroswarm.transfer.shard_landing import WantedShard
from neuroswarm.values import NodeId, PeerAddress

CORPUS = hashlib.sha256(b"corpus").digest()
SHARDS = tuple(bytes((i + k) % 251 for k in range(50_000 + i)) for i in range(8))
HASHES = tuple(hashlib.sha256(shard).digest() for shard in SHARDS)
HELD, BYTES = "Shards/Held", "Shards/Bytes"


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of those who fetch, for tests in real time."""
    monkeypatch.setattr(shard_crew, "LOOK_S", 0.01)
    monkeypatch.setattr(shard_sightings, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(donor_pool, "BUSY_S", (0.01, 0.02))


class Files:
    """Shards in a folder; what a donor needs."""

    corpus = CORPUS

    def __init__(self, folder: Path, *indices: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.held = set(indices)
        for index in indices:
            (folder / str(index)).write_bytes(SHARDS[index])

    def held_bits(self) -> bytes:
        return sum(1 << index for index in self.held).to_bytes(1, "little")

    def is_to_be_read(self, _sha256: bytes) -> bool:
        return False

    def find(self, sha256: bytes) -> Path | None:
        index = HASHES.index(sha256) if sha256 in HASHES else None
        return self.folder / str(index) if index in self.held else None


class Memory:
    """Takes what is fetched; what a crew needs."""

    corpus = CORPUS

    def __init__(self) -> None:
        self.parts: dict[int, bytearray] = {}
        self.whole: dict[int, bytes] = {}
        self.failure: str | None = None

    def received(self, index: int) -> int:
        return len(self.parts.get(index, b""))

    def write(self, index: int, offset: int, data: bytes) -> None:
        if self.failure is not None:
            raise DataError(self.failure)
        part = self.parts.setdefault(index, bytearray())
        assert offset == len(part), "in order"
        part += data

    def finish(self, index: int) -> bool:
        data = bytes(self.parts.pop(index))
        if hashlib.sha256(data).digest() != HASHES[index]:
            return False
        self.whole[index] = data
        return True

    def discard(self, index: int) -> None:
        self.parts.pop(index, None)


class Open:
    """A link without a limit."""

    def may_give(self, _num_bytes: int) -> bool:
        return True

    async def take(self, _num_bytes: int) -> float:
        return 0.0


Tamper = Callable[[int, list[bytes]], list[bytes]]
"""(number of the call, its messages) -> what is sent instead."""


@dataclass(eq=False)
class ShardScene:
    """One network, and everybody on it."""

    folder: Path
    clock: Clock = field(default_factory=SystemClock)
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    addresses: list[PeerAddress] = field(default_factory=list)
    blamed: list[tuple[NodeId, PeerError]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    disk_failures: list[DataError] = field(default_factory=list)

    async def donor(
        self, name: str, *indices: int, files: Files | None = None, **settings: float
    ) -> ShardDonor:
        """An honest donor of these shards."""
        rpc = self.network.rpc(Speaker(name).node_id)
        held = files or Files(self.folder / name, *indices)
        cfg = DataConfig.model_validate(settings)
        donor = ShardDonor(rpc, held, cfg, clock=self.clock, uplink=Open())
        await rpc.start()
        self.addresses.append(rpc.address)
        return donor

    async def liar(self, name: str, *indices: int, tamper: Tamper) -> MemoryRpc:
        """A donor that says that it holds these shards, and sends something else."""
        behind = self.network.rpc(Speaker(f"behind {name}").node_id)
        files = Files(self.folder / name, *indices)
        ShardDonor(behind, files, DataConfig(), clock=self.clock, uplink=Open())
        rpc = self.network.rpc(Speaker(name).node_id)
        calls = 0

        async def pass_on(_caller: NodeId, data: bytes) -> bytes:
            return await rpc.call(behind.address, HELD, data, timeout_s=5)

        async def lie(_caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
            nonlocal calls
            calls += 1
            stream = rpc.stream(behind.address, BYTES, data, timeout_s=5)
            for message in tamper(calls, [message async for message in stream]):
                yield message

        rpc.serve_unary(HELD, pass_on)
        rpc.serve_stream(BYTES, lie)
        for end in (behind, rpc):
            await end.start()
        self.addresses.append(rpc.address)
        return rpc

    async def crew(self, *wanted: int, memory: Memory | None = None) -> ShardCrew:
        """Somebody who wants these shards; to be started."""
        rpc = self.network.rpc(Speaker("asker").node_id)
        crew = ShardCrew(
            rpc,
            memory or self.memory,
            len(SHARDS),
            lambda: self.addresses,
            blame=lambda peer, error: self.blamed.append((peer, error)),
            clock=self.clock,
        )
        crew.on_disk_failure = self.disk_failures.append
        crew.is_looking = True
        await rpc.start()
        crew.want(name(index) for index in wanted)
        return crew

    async def until_whole(self, *indices: int) -> None:
        """Wait until these shards are there; each is right."""
        await until(lambda: set(indices) <= self.memory.whole.keys(), within_s=20, what="shards")
        assert all(self.memory.whole[index] == SHARDS[index] for index in indices)


def name(index: int) -> WantedShard:
    return WantedShard(index, HASHES[index], len(SHARDS[index]))


def node(speaker: str) -> NodeId:
    return Speaker(speaker).node_id
