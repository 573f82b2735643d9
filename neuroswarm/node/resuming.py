"""Takes up what this node said in the round in progress before it was restarted.

Knows nothing of when anything is said for the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from neuroswarm.checkpoint.said import Said
from neuroswarm.errors import PeerError
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.holdings import Holdings
from neuroswarm.node.intake import Intake
from neuroswarm.node.replica import Replica
from neuroswarm.node.voice import Voice, unpack_statements
from neuroswarm.rounds import statements
from neuroswarm.rounds.agreement import Round
from neuroswarm.wire.messages import Ballot, Confirm, Contribution
from neuroswarm.wire.signed import Kind

logger = logging.getLogger(__name__)


class Resuming:
    """Statements of an earlier life that the round in progress does not know yet.

    With peers they are taken up at once. A node that is alone takes its inner steps again first:
    with the same seed they lead to the very same contribution, so that the resumed run equals an
    uninterrupted one; what was said before holds only if they do not.
    """

    def __init__(
        self, intake: Intake, *, crowd: Crowd, holdings: Holdings, replica: Replica, voice: Voice
    ) -> None:
        self._intake = intake
        self._crowd = crowd
        self._holdings = holdings
        self._replica = replica
        self._voice = voice
        self._waiting: dict[Kind, Said] = {}

    @property
    def is_due(self) -> bool:
        """Whether something waits to be taken up now."""
        is_alone = not self._crowd.live()
        return bool(self._waiting) and not (is_alone and Kind.CONTRIBUTION in self._waiting)

    def begin(self, said: Mapping[Kind, Said]) -> None:
        """A round begins, in which this was said before."""
        self._waiting = dict(said)

    def is_the_same(self, header: Contribution) -> bool:
        """Whether a lone node has come to the contribution that it had published before."""
        before = self._waiting.get(Kind.CONTRIBUTION)
        if before is not None and before.signed.body == header.encode():
            del self._waiting[Kind.CONTRIBUTION]
            return True
        return before is None

    async def take_up(self, current: Round, now: float) -> None:
        """Enter all that waits into the round and the books.

        What turns out damaged is lost: nothing of its kind is signed again in this round.
        """
        waiting, self._waiting = self._waiting, {}
        for kind, before in waiting.items():
            try:
                await self._take_up_one(current, before, now)
            except PeerError as error:
                logger.warning("what was signed before is lost: %s: %s", kind.name.lower(), error)
                self._voice.lose(kind)

    async def _take_up_one(self, current: Round, before: Said, now: float) -> None:
        statement = statements.decode(before.signed)
        if not isinstance(statement, Contribution):
            for amendment in unpack_statements(before.payload):
                self._intake.archive.add_amendment(amendment)
        self._intake.register.note(before.signed, statement)
        match statement:
            case Ballot():
                current.heard_ballot(self._crowd.me, statement.contributions)
            case Confirm():
                current.heard_confirm(self._crowd.me, statement.contributions)
            case Contribution():
                await self._holdings.keep_own(before.signed, statement, before.payload)
                await self._replica.resume(before.signed.id, statement, before.payload)
                current.published(before.signed.id, now)
                self._voice.spread_contribution(before.signed)
