"""Contributions that this node holds whole: pulled, checked, decoded.

Knows nothing of ballots or of what is agreed.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from neuroswarm.checkpoint.held import HeldLog
from neuroswarm.clock import Clock
from neuroswarm.codecs.payload import Payload
from neuroswarm.diloco.outer import AgreedContribution
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import (
    CheckpointError,
    PeerError,
    PeerUnreachable,
    ProtocolViolation,
    SchemaMismatch,
)
from neuroswarm.gossip.archive import Entry, PutAway
from neuroswarm.gossip.asking import Asker, is_payload_of
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.intake import RETAINED_ROUNDS, Intake
from neuroswarm.node.replica import Replica
from neuroswarm.rounds import statements
from neuroswarm.training.threads import run_beside
from neuroswarm.values import NodeId, PeerAddress, short
from neuroswarm.wire.messages import Contribution
from neuroswarm.wire.signed import Kind, Signed

logger = logging.getLogger(__name__)

RETRY_S = 0.5
QUICK_RETRY_S = 0.1
NUM_QUICK_TRIES = 4
"""Tries with the signer and the sender of the header alone: others reveal a moment later."""

_NUM_TIMED = 15
"""Pulls whose median says how long a payload takes, so that a few slow peers do not."""


class Holding(enum.Enum):
    """What became of a payload that was wanted."""

    HELD = "held"
    MALFORMED = "malformed"
    """It is what its header promises, and cannot be decoded: everyone refuses it alike."""
    GIVEN_UP = "given up"
    """Nobody gave it while it was wanted."""


@dataclass(frozen=True, eq=False)
class AgreedSet:
    """What a round agreed on, whole."""

    contributions: tuple[AgreedContribution, ...]
    amendments: tuple[Signed, ...]
    """Verified; whether one may follow the rules is judged when they are applied."""


class Holdings:
    """The payloads of the latest rounds."""

    def __init__(
        self,
        intake: Intake,
        asker: Asker,
        *,
        crowd: Crowd,
        replica: Replica,
        log: HeldLog | None,
        clock: Clock,
    ) -> None:
        """Wire up; without a log (a node without a state folder) nothing outlives a restart."""
        self._intake = intake
        self._log = log
        self._log_failed = False
        self._asker = asker
        self._crowd = crowd
        self._replica = replica
        self._clock = clock
        self._decoded: dict[bytes, tuple[Payload, ...]] = {}
        self._pulling: dict[bytes, asyncio.Event] = {}
        self._took_s: deque[float] = deque(maxlen=_NUM_TIMED)

    @property
    def payload_s(self) -> float:
        """Lower median of the time to pull one payload lately, seconds; 0 before the first."""
        return sorted(self._took_s)[(len(self._took_s) - 1) // 2] if self._took_s else 0.0

    async def keep_own(self, signed: Signed, header: Contribution, payload: bytes) -> None:
        """Hold this node's own contribution; nobody gets its payload before it is revealed.

        Raises:
            SchemaMismatch: its payload cannot be decoded; nothing is held.
        """
        decoded = await run_beside(self._replica.unpack, header, payload)
        self._intake.archive.add_header(signed, header)
        self._intake.archive.withhold(signed.id)
        self._intake.archive.add_payload(signed.id, payload)
        self._decoded[signed.id] = decoded

    async def note(self, base: OuterState, contributions: Iterable[bytes]) -> None:
        """Put contributions of others on the disk, before a ballot names them.

        Without that they could be agreed, and lost with the power of the whole swarm. A disk that
        refuses keeps nobody from its ballot: it takes all of them at once to lose one.
        """
        entries = [e for c in contributions if (e := self._intake.archive.get(c)) is not None]
        held = [
            (e.signed, e.payload)
            for e in entries
            if isinstance(e.payload, bytes) and e.signed.signer != self._crowd.me
        ]
        if self._log is None or not held:
            return
        try:
            await asyncio.to_thread(self._log.record, base.round, base.digest, held)
            self._log_failed = False
        except CheckpointError as error:
            if not self._log_failed:
                logger.warning("%s (training goes on)", error)
            self._log_failed = True

    async def recall(self, base: OuterState) -> list[Signed]:
        """Take up what this node had noted in a round before it was restarted; the headers."""
        if self._log is None:
            return []
        recalled = []
        for signed, payload in await asyncio.to_thread(self._log.recall, base.round, base.digest):
            try:
                header = statements.decode(signed)
                if not isinstance(header, Contribution) or not is_payload_of(header, payload):
                    raise SchemaMismatch("not what was noted")
                self._intake.check_header(header, base)
            except PeerError as error:
                logger.warning("a noted contribution of %s is damaged: %s", signed.signer, error)
                continue
            self._intake.archive.add_header(signed, header)
            self._intake.archive.add_payload(signed.id, payload)
            recalled.append(signed)
        return recalled

    def forget_before(self, round_: int) -> None:
        """Drop decoded payloads of finished rounds, and everything of long finished ones."""
        archive = self._intake.archive
        for contribution in list(self._decoded):
            entry = archive.get(contribution)
            if entry is None or entry.header.round < round_:
                del self._decoded[contribution]
        self._intake.forget_before(round_ - RETAINED_ROUNDS)

    async def hold(
        self, contribution: bytes, holder: NodeId, *, is_wanted: Callable[[], bool]
    ) -> Holding:
        """Pull and decode a contribution whose header is known, while it is wanted."""
        num_tries = 0
        while is_wanted():
            is_quick = num_tries < NUM_QUICK_TRIES
            num_tries += 1
            try:
                await self._obtain(contribution, holder, is_quick=is_quick)
            except SchemaMismatch as error:
                logger.warning("contribution %s refused: %s", short(contribution), error)
                entry = self._intake.archive.get(contribution)
                if entry is not None:  # its hash is that of the signed header
                    self._crowd.misbehaved(entry.signed.signer, error)
                return Holding.MALFORMED
            except PeerError as error:
                logger.debug("contribution %s not held yet: %s", short(contribution), error)
                await self._clock.sleep(QUICK_RETRY_S if is_quick else RETRY_S)
            else:
                return Holding.HELD
        return Holding.GIVEN_UP

    async def agreed(
        self, base: OuterState, ids: Iterable[bytes], sources: Sequence[PeerAddress]
    ) -> AgreedSet:
        """An agreed set of the round on `base`, whole; what is missing is pulled.

        Raises:
            ProtocolViolation: a contribution is to another round or state, so that no honest
                peer has listed it.
            PeerUnreachable: a header or payload is not to be had.
            SchemaMismatch: a payload is malformed, which no honest quorum agrees on.
        """
        wanted, archive = list(ids), self._intake.archive
        await self._find_headers([c for c in wanted if archive.statement(c) is None], sources)
        amendments = tuple(s for c in wanted if (s := archive.amendment(c)) is not None)
        contributions = [c for c in wanted if archive.amendment(c) is None]
        for contribution in contributions:
            entry = archive.get(contribution)
            if entry is None or _about(entry.header) != (base.round, base.digest):
                raise ProtocolViolation(f"contribution {short(contribution)} is to another round")
            await self._obtain(contribution, *(peer.node_id for peer in sources))
        return AgreedSet(tuple(map(self._agreed, contributions)), amendments)

    def _agreed(self, contribution: bytes) -> AgreedContribution:
        entry = self._intake.archive.get(contribution)
        assert entry is not None, "_obtain keeps the entry"
        return AgreedContribution(
            node_id=entry.signed.signer,
            id=contribution,
            inner_steps=entry.header.inner_steps,
            tokens=entry.header.tokens,
            payloads=self._decoded[contribution],
        )

    async def _find_headers(
        self, contributions: list[bytes], sources: Sequence[PeerAddress]
    ) -> None:
        missing = set(contributions)
        for source in (*sources, *self._crowd.targets()):
            if not missing:
                return
            try:
                while missing and (found := await self._asker.headers(sorted(missing), source)):
                    self.learn(found)
                    missing -= {signed.id for signed in found}
            except PeerError as error:
                logger.debug("headers from %s: %s", source, error)
        if missing:
            raise PeerUnreachable(f"headers of {len(missing)} agreed contributions not to be had")

    def learn(self, headers: Iterable[Signed]) -> None:
        """Take in verified headers and amendments.

        Raises:
            SchemaMismatch: a header does not fit the architecture.
        """
        for signed in headers:
            if signed.kind is Kind.AMENDMENT:
                self._intake.archive.add_amendment(signed)
                continue
            header = statements.decode(signed)
            if not isinstance(header, Contribution):
                raise SchemaMismatch(f"not a contribution: {signed.kind.name.lower()}")
            self._intake.check_header(header, self._replica.base_of(header))
            self._intake.archive.add_header(signed, header)

    async def _obtain(self, contribution: bytes, *holders: NodeId, is_quick: bool = False) -> None:
        if contribution in self._decoded:
            return
        pulled = self._pulling.get(contribution)
        if pulled is not None:
            await pulled.wait()
            if contribution in self._decoded:
                return
        self._pulling[contribution] = done = asyncio.Event()
        try:
            await self._pull(contribution, holders, is_quick=is_quick)
        finally:
            done.set()
            self._pulling.pop(contribution, None)

    async def _pull(
        self, contribution: bytes, holders: tuple[NodeId, ...], *, is_quick: bool
    ) -> None:
        archive = self._intake.archive
        entry = archive.get(contribution)
        if entry is None:
            raise PeerUnreachable(f"contribution {short(contribution)} is not known any more")
        payload, started_at = await self._take(contribution, entry), self._clock.monotonic()
        if payload is None:
            sources = self._crowd.sources(entry.signed.signer, *holders)
            sources = sources[: 1 + len(holders)] if is_quick else sources
            payload = await self._asker.payload(contribution, entry.header, sources)
            archive.add_header(entry.signed, entry.header)
            archive.add_payload(contribution, payload)
        self._took_s.append(self._clock.monotonic() - started_at)
        self._decoded[contribution] = await run_beside(self._replica.unpack, entry.header, payload)

    async def _take(self, contribution: bytes, entry: Entry) -> bytes | None:
        """A payload that is held, in memory from now on; one that is lost is held no more."""
        payload = entry.payload
        if payload is None or isinstance(payload, bytes):
            return payload
        data = await asyncio.to_thread(_bring_back, entry.header, payload)
        if data is None:
            logger.warning("payload %s cannot be read back", short(contribution))
        self._intake.archive.replace_payload(contribution, data)
        return data


def _bring_back(header: Contribution, payload: PutAway) -> bytes | None:
    """A payload that was put away; None if it is lost."""
    try:
        data = payload.read(0, len(payload))
    except CheckpointError:
        return None
    return data if is_payload_of(header, data) else None


def _about(header: Contribution) -> tuple[int, bytes]:
    return header.round, header.base_digest
