"""Download of an outer state from several peers at once, checked piece by piece.

Knows nothing of why a state is wanted or what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from neuroswarm.clock import Clock
from neuroswarm.diloco.pieces import PIECE_BYTES, Layout, Shape
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import NewerRules, PeerError, PeerUnreachable
from neuroswarm.transfer.donor_pool import DonorPool
from neuroswarm.transfer.incoming import IncomingFolder
from neuroswarm.transfer.piece_crew import Blame, PieceCrew
from neuroswarm.transfer.piece_plan import PiecePlan
from neuroswarm.transfer.state_manifest import StateManifest, read_manifest
from neuroswarm.transport import Rpc
from neuroswarm.v1 import state_pb2
from neuroswarm.values import HASH_BYTES, NodeId, PeerAddress, short

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 10.0
QUICK_TIMEOUT_S = 2.0
NUM_QUICK = 3
"""Peers that are given less time first: where a message is lost, another answers sooner."""
SLOWEST_BYTES_PER_S = 8192
"""Rate at which a manifest may come in, besides the time above."""

MAX_MANIFESTS = 8
"""Peers that are asked what the state consists of before the download is given up."""

Candidates = Callable[[], Sequence[PeerAddress]]
"""Peers that may hold the wanted state now, best first."""


class StateDownloader:
    """Downloads states of one architecture, several at once if need be."""

    def __init__(
        self,
        rpc: Rpc,
        architecture: bytes,
        shape: Shape,
        *,
        folder: Path | None,
        blame: Blame,
        clock: Clock,
    ) -> None:
        """Wire up.

        Args:
            rpc: The node's transport.
            architecture: This node's architecture hash, 32 bytes.
            shape: This node's fragments; bounds what is received.
            folder: Where unfinished states lie; None: nowhere, a restart begins anew.
            blame: Told of a peer that gave what no honest peer gives.
            clock: Measures rates and rests.
        """
        self._rpc = rpc
        self._architecture = architecture
        self._shape = shape
        self._folder = IncomingFolder(folder)
        self._blame = blame
        self._clock = clock
        self._random = random.Random(short(architecture) + str(folder))
        self._locks: dict[bytes, asyncio.Lock] = {}
        self._latest: weakref.ref[OuterState] | None = None
        self._crews: dict[bytes, PieceCrew] = {}
        self._last_givers = b"", frozenset[NodeId]()
        self.bytes_fetched = 0
        """Of pieces, since the start, wrong and unfinished ones included."""

    async def fetch(
        self, digest: bytes, candidates: Candidates, is_outdone: Callable[[], bool] | None = None
    ) -> OuterState:
        """Download the outer state with a digest; who asks for one under way waits for it.

        Args:
            digest: Digest of the wanted state, 32 bytes.
            candidates: Peers that may hold it; asked again and again while it lasts.
            is_outdone: Whether it is not worth while any more, which ends it; None: it always is.

        Returns:
            A state whose digest is `digest`. What is on disk of it stays until `forget`.

        Raises:
            PeerUnreachable: nobody gives it, or no longer, or too slowly; or it is outdone.
            ProtocolViolation: it is no state that a swarm can have.

        Cancellation: what was received stays on disk.
        """
        lock = self._locks.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                known = None if self._latest is None else self._latest()
                if known is not None and known.digest == digest and known.is_in_memory:
                    return known
                state = await self._fetch(digest, candidates, is_outdone)
                self._latest = weakref.ref(state)
                return state
        finally:
            if not lock.locked():
                self._locks.pop(digest, None)

    async def has_unfinished(self) -> bool:
        """Whether a former life left a download behind."""
        return bool(await asyncio.to_thread(self._folder.digests))

    async def unfinished(self, candidates: Candidates, num_wanted: int = 1) -> bytes | None:
        """The digest of a state that a former life began to download and that is still served.

        Those that nobody serves are removed.

        Args:
            candidates: Peers that may serve it.
            num_wanted: Peers that must serve it, 1 to `MAX_MANIFESTS`.
        """
        for digest in await asyncio.to_thread(self._folder.digests):
            served_by = set[NodeId]()
            async with aclosing(self._manifests(digest, candidates)) as manifests:
                async for source, _ in manifests:
                    served_by.add(source)
                    if len(served_by) >= num_wanted:
                        return digest
            if not served_by:
                logger.info("an unfinished download, %s, is of no use any more", short(digest))
                await self.forget(digest)
        return None

    async def forget(self, digest: bytes) -> None:
        """Remove what is on disk of a state."""
        await asyncio.to_thread(self._folder.remove, digest)

    def givers(self, digest: bytes) -> frozenset[NodeId]:
        """Peers that have given right pieces of a state under way, or of the last one that was."""
        if (crew := self._crews.get(digest)) is not None:
            return crew.givers
        last, givers = self._last_givers
        return givers if last == digest else frozenset()

    def progress(self) -> Mapping[str, object] | None:
        """How far the newest download under way is, as JSON values; None without one."""
        crews = list(self._crews.values())
        return dict(crews[-1].progress()) if crews else None

    async def _fetch(
        self, digest: bytes, candidates: Candidates, is_outdone: Callable[[], bool] | None
    ) -> OuterState:
        manifest = await self._find_manifest(digest, candidates)
        incoming = await asyncio.to_thread(self._folder.open, manifest)
        try:
            there = await asyncio.to_thread(incoming.recover)
            layout = manifest.layout
            sizes = [layout.locate(piece).num_bytes for piece in range(layout.num_pieces)]
            crew = PieceCrew(
                self._rpc,
                incoming,
                PiecePlan(sizes, there),
                DonorPool(candidates, self._random.getrandbits(32)),
                blame=self._blame,
                clock=self._clock,
            )
            if is_outdone is not None:
                crew.is_outdone = is_outdone
            await self._work(digest, crew)
            state = await asyncio.to_thread(incoming.finish)
            if await asyncio.to_thread(lambda: state.digest) != digest:
                raise AssertionError("every piece was checked against the digest")
        finally:
            incoming.close()
        return state

    async def _work(self, digest: bytes, crew: PieceCrew) -> None:
        self._crews[digest] = crew
        try:
            async with crew:
                await crew.wait_complete()
        finally:
            del self._crews[digest]
            self._last_givers = digest, crew.givers
            self.bytes_fetched += crew.bytes_fetched

    async def _find_manifest(self, digest: bytes, candidates: Candidates) -> StateManifest:
        async with aclosing(self._manifests(digest, candidates)) as manifests:
            async for _, manifest in manifests:
                return manifest
        raise PeerUnreachable(f"state {short(digest)} is not to be had from anybody")

    async def _manifests(
        self, digest: bytes, candidates: Candidates
    ) -> AsyncGenerator[tuple[NodeId, StateManifest], None]:
        """Ask one peer after the other what the state consists of."""
        sources = list(candidates())[:MAX_MANIFESTS]
        quick = [(source, QUICK_TIMEOUT_S) for source in sources[:NUM_QUICK]]
        answered = set[NodeId]()
        for source, timeout_s in (*quick, *((source, ASK_TIMEOUT_S) for source in sources)):
            if source.node_id in answered:
                continue
            try:
                data = await self._ask_manifest(source, digest, timeout_s)
            except PeerError as error:
                logger.info("no state %s from %s: %s", short(digest), source, error)
                continue
            try:
                manifest = await asyncio.to_thread(
                    read_manifest,
                    data,
                    digest,
                    architecture=self._architecture,
                    shape=self._shape,
                )
            except NewerRules:
                raise  # whoever has this state has it with these rules
            except PeerError as error:
                logger.warning("%s lies about state %s: %s", source, short(digest), error)
                self._blame(source.node_id, error)
                answered.add(source.node_id)
                continue
            answered.add(source.node_id)
            if manifest is not None:
                yield source.node_id, manifest

    async def _ask_manifest(self, source: PeerAddress, digest: bytes, timeout_s: float) -> bytes:
        request = state_pb2.ManifestRequest(digest=digest).SerializeToString()
        expected_bytes = HASH_BYTES * Layout(self._shape).num_bytes // PIECE_BYTES
        timeout_s += expected_bytes / SLOWEST_BYTES_PER_S
        return await self._rpc.call(source, "State/Manifest", request, timeout_s=timeout_s)
