"""Takes statements in: the objective checks (DESIGN 6), then the round that they speak of.

Statements for the next rounds, and on the bases of other lineages that this node may be repaired
to, wait, bounded; equivocators are convicted. Knows nothing of what this node says itself or of
how rounds end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from neuroswarm.codecs.registry import codec_of
from neuroswarm.diloco.amending import describe_changes, read_amendment
from neuroswarm.diloco.pieces import Shape
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import (
    BadSignature,
    NewerRules,
    PeerError,
    ProtocolViolation,
    SchemaMismatch,
    WrongPayload,
)
from neuroswarm.gossip.archive import Archive
from neuroswarm.gossip.asking import is_payload_of
from neuroswarm.membership.conduct import Offence
from neuroswarm.node.convictions import Convictions
from neuroswarm.node.crowd import Crowd
from neuroswarm.rounds.agreement import Round
from neuroswarm.rounds.history import History
from neuroswarm.rounds.statements import Proof, Register, Statement
from neuroswarm.values import NodeId
from neuroswarm.wire import limits, messages
from neuroswarm.wire.signed import Signed

logger = logging.getLogger(__name__)

MAX_ROUNDS_AWAY = 2
RETAINED_ROUNDS = 8
"""Finished rounds of which statements and payloads are kept, for peers that are late."""

MAX_WAITING = 4096
MAX_WAITING_PER_SIGNER = 32
MAX_WAITING_BYTES = 64 * 1024 * 1024
MAX_PUBLISHERS = limits.MAX_SET - 1 - limits.MAX_AMENDMENTS
"""Contributions of others in one round, so that all fit into a ballot beside the own one and
amendments."""

MAX_STRANGERS = 4096
"""Signers whose ready, skip or seal a round notes before those that no heartbeat told of are
turned away: their keys cost nothing, and every noted one takes memory until the round is over."""

MAX_STRANGERS_CONVICTED = 128
"""Bans by proofs against signers that this node knows nothing else of, in one life."""

STRANGERS_SHARE = 4
"""Signers that no heartbeat told of get together one in so many of the places above."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """What a contribution must fit: the swarm and the architecture."""

    swarm_id: bytes
    architecture: bytes
    shape: Shape
    base: bytes = b""
    """Hash of the frozen parameters, part of the swarm id; empty where none is frozen."""


@dataclass(slots=True)
class _Current:
    round: Round
    state: OuterState


class Intake:
    """The gossip's listener."""

    def __init__(
        self,
        cohort: Cohort,
        crowd: Crowd,
        *,
        want: Callable[[bytes, NodeId], None],
        wake: Callable[[], None],
        tell: Callable[[Signed], None],
        max_archive_bytes: int,
    ) -> None:
        """Start with no round in progress.

        Args:
            cohort: What contributions must fit.
            crowd: The peers.
            want: Asked to pull a contribution's payload; gets its id and who has it.
            wake: Called when the round in progress may have something to do.
            tell: Asked to spread an amendment that came from the owner itself.
            max_archive_bytes: Bound on the payloads kept.
        """
        self._cohort = cohort
        self._crowd = crowd
        self._want = want
        self._wake = wake
        self._tell = tell
        self._current: _Current | None = None
        self._waiting: list[tuple[Signed, Statement, NodeId]] = []
        self._waiting_bytes = 0
        self.archive = Archive(max_archive_bytes)
        self.register = Register()
        self.convictions = Convictions()
        self._is_catching_up = False
        self._num_strangers_convicted = 0
        self.history: History | None = None
        self.counters: Counter[str] = Counter()
        """Statements by what became of them; equivocators, refused contributions."""

    def begin(self, round_: Round, state: OuterState, history: History) -> None:
        """Take statements for this round from now on, those that waited for it first."""
        self._current = _Current(round_, state)
        self._crowd.expel(state.rules.expelled_ids)
        for amendment in self.pending_amendments():
            round_.heard_amendment(amendment.id)
        self.history = history
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._is_catching_up = True
        for signed, statement, sender in waiting:
            if not self._crowd.is_banned(signed.signer):  # it may have been expelled meanwhile
                self._sort(signed, statement, sender)
        self._is_catching_up = False

    def pending_amendments(self) -> list[Signed]:
        """Amendments that may follow the present rules and are not agreed yet."""
        current = self._current
        if current is None:
            return []
        return [s for s in self.archive.amendments() if self._may_follow(s, current.state)]

    def _may_follow(self, signed: Signed, state: OuterState) -> bool:
        try:
            read_amendment(signed, self._cohort.swarm_id, state.rules)
        except (BadSignature, ProtocolViolation):
            return False
        return True

    def forget_before(self, round_: int) -> None:
        """Drop what is only about rounds before `round_`."""
        self.archive.forget_before(round_)
        self.register.forget_before(round_)

    # -- the gossip's Listener -------------------------------------------------------

    def on_statement(self, signed: Signed, statement: Statement, sender: NodeId) -> bool | Proof:
        """Check and sort one verified statement; whether to relay it, or what it proves."""
        if statement.swarm_id != self._cohort.swarm_id:
            self.counters["other_swarm"] += 1  # another cohort is no misbehaviour
            return False
        if self._crowd.is_banned(signed.signer):
            self.counters["banned"] += 1
            return False
        self._crowd.positions.note(signed.signer, statement.round, statement.base_digest)
        if not self._is_near(statement):
            if self._crowd.knows_better(sender, statement.round + RETAINED_ROUNDS):
                self._crowd.offend(sender, Offence.REPLAY)
            return self._note_late(signed, statement)
        is_stranger = not self._crowd.is_known(signed.signer)
        proof = self.register.note(signed, statement, is_stranger=is_stranger)
        if proof is not None:
            return proof if self.on_proof(proof) else False
        if not self.register.holds(signed, statement):
            self.counters["too_many"] += 1
            return False
        return self._sort(signed, statement, sender)

    @property
    def state(self) -> OuterState | None:
        """The outer state of the round in progress; None before the first."""
        return None if self._current is None else self._current.state

    @property
    def swarm_id(self) -> bytes:
        """The swarm, 32 bytes."""
        return self._cohort.swarm_id

    def propose(self, signed: Signed) -> None:
        """Take an amendment from the owner itself and have it spread.

        Raises:
            PeerError: it is not the owner's, does not follow the present rules, or brings
                rules that some live peers do not know.
        """
        if self._current is None:
            raise PeerError("no round is in progress here yet: ask again later")
        if self.archive.amendment(signed.id) is None:
            present = self._current.state.rules
            self._crowd.require_known(read_amendment(signed, self._cohort.swarm_id, present))
            self.on_amendment(signed)
            self._tell(signed)

    def on_amendment(self, signed: Signed) -> bool:
        """Take an amendment by the owner; whether it is news and may follow the present rules.

        Raises:
            BadSignature: it is not signed by the owner.
            ProtocolViolation: it does not follow the present rules.
        """
        current = self._current
        if current is None or self.archive.amendment(signed.id) is not None:
            return False
        try:
            rules = read_amendment(signed, self._cohort.swarm_id, current.state.rules)
        except NewerRules as error:
            logger.warning("the owner of this swarm proposes %s", error)
            raise
        self.archive.add_amendment(signed)
        current.round.heard_amendment(signed.id)
        self.counters["amendments"] += 1
        changes = ", ".join(describe_changes(current.state.rules, rules))
        logger.warning("the owner of this swarm proposes other rules: %s", changes)
        self._wake()
        return True

    def on_inline(self, contribution: bytes, payload: bytes) -> None:
        """Keep a small payload that came with its header, if it is the one promised."""
        entry = self.archive.get(contribution)
        if entry is None or entry.payload is not None:
            return
        if not is_payload_of(entry.header, payload):
            raise WrongPayload("inline payload is not the one promised")
        self.archive.add_payload(contribution, payload)
        if self._current is not None and entry.header.round == self._current.state.round:
            self._want(contribution, entry.signed.signer)

    def on_proof(self, proof: Proof) -> bool:
        """Ban an equivocator for good and drop what it said in this round."""
        if proof.signer == self._crowd.me:
            logger.error("this node's key signed two statements: is it used on two machines?")
            return False
        if self._current is not None:
            self._current.round.exclude(proof.signer)
            self._wake()
        if self._crowd.is_banned_for_good(proof.signer) or not self._may_convict(proof.signer):
            return False
        self.convictions.add(proof)
        self.counters["equivocators"] += 1
        kind = proof.first.kind.name.lower()
        logger.warning("peer %s banned: it signed two different %ss", proof.signer, kind)
        self._crowd.ban(proof.signer, f"equivocation: two {kind}s in one round")
        return True

    def _may_convict(self, signer: NodeId) -> bool:
        """Whether there is room: keys that nobody knows are free, and must not fill the bans."""
        is_member = self._current is not None and signer in self._current.state.applied
        if is_member or self._crowd.is_known(signer):
            return True
        self._num_strangers_convicted += 1
        return self._num_strangers_convicted <= MAX_STRANGERS_CONVICTED

    # -- sorting ---------------------------------------------------------------------

    def _sort(self, signed: Signed, statement: Statement, sender: NodeId) -> bool:
        current = self._current
        number = None if current is None else current.state.round
        if self._is_of_other_lineage(statement):
            self.counters["other_lineage"] += 1
            self._keep(signed, statement, sender)
            return False
        if number is None or number < statement.round <= number + MAX_ROUNDS_AWAY:
            return self._keep(signed, statement, sender)
        if current is None or statement.round != number:
            return self._note_late(signed, statement)
        if statement.base_digest != current.state.digest:
            return self._keep(signed, statement, sender)  # the move there is under way
        if not self._has_room(current.round, signed.signer, statement):
            self.counters["too_many"] += 1
            return False
        self.counters["taken"] += 1
        self._feed(current, signed, statement, sender)
        self._wake()
        return True

    def _has_room(self, round_: Round, signer: NodeId, statement: Statement) -> bool:
        """Whether the round can note one more; ballots and confirms are bounded before."""
        if isinstance(statement, messages.Ready | messages.Skip | messages.Seal):
            return self._crowd.is_known(signer) or round_.num_heard < MAX_STRANGERS
        if not isinstance(statement, messages.Contribution):
            return True
        publishers = round_.publishers
        if self._crowd.is_known(signer):
            return len(publishers) < MAX_PUBLISHERS or signer in publishers
        num_strangers = sum(not self._crowd.is_known(publisher) for publisher in publishers)
        has_share = num_strangers < MAX_PUBLISHERS // STRANGERS_SHARE
        return has_share and len(publishers) < MAX_PUBLISHERS

    def _is_near(self, statement: Statement) -> bool:
        """Whether the round may still matter here, so that what is said of it is remembered."""
        if self._current is None:
            return True  # nobody knows yet what is near
        away = statement.round - self._current.state.round
        return -RETAINED_ROUNDS <= away <= MAX_ROUNDS_AWAY

    def _is_of_other_lineage(self, statement: Statement) -> bool:
        """Whether it is about a round near this one on a base that is not this node's."""
        history, round_ = self.history, statement.round
        if history is None or not -MAX_ROUNDS_AWAY <= round_ - history.round <= 0:
            return False
        return history.digest_at(round_) not in (None, statement.base_digest)

    def _keep(self, signed: Signed, statement: Statement, sender: NodeId) -> bool:
        share = 1 if self._crowd.is_known(signed.signer) else STRANGERS_SHARE
        size = self._waiting_bytes + len(signed.body)
        mine = sum(kept.signer == signed.signer for kept, _, _ in self._waiting)
        is_full = share * len(self._waiting) >= MAX_WAITING or share * size > MAX_WAITING_BYTES
        if mine >= MAX_WAITING_PER_SIGNER or is_full:
            self.counters["not_kept"] += 1
            return False
        self._waiting.append((signed, statement, sender))
        self._waiting_bytes = size
        return True

    def _note_late(self, signed: Signed, statement: Statement) -> bool:
        self.counters["stale"] += 1
        if self.history is None or not isinstance(statement, messages.Confirm):
            return False
        finished = self.history.find(statement.round)
        about = (statement.base_digest, statement.contributions)
        if self._current is None or not self._crowd.is_counted(signed.signer, self._current.state):
            return False
        if finished is not None and about == (finished.base_digest, finished.contributions):
            self.history.add_confirm(statement.round, signed)
        return False

    def _feed(
        self, current: _Current, signed: Signed, statement: Statement, sender: NodeId
    ) -> None:
        signer, round_ = signed.signer, current.round
        self._crowd.voices.heard(signer, statement.round)
        match statement:
            case messages.Ready():
                round_.heard_ready(signer)
            case messages.Skip():
                round_.heard_skip(signer)
            case messages.Seal():
                round_.heard_seal(signer)
            case messages.Ballot():
                round_.heard_ballot(signer, statement.contributions)
            case messages.Confirm():
                round_.heard_confirm(signer, statement.contributions)
            case messages.Contribution():
                self._feed_contribution(current, signed, statement, sender)

    def _feed_contribution(
        self, current: _Current, signed: Signed, header: messages.Contribution, sender: NodeId
    ) -> None:
        try:
            self.check_header(header, current.state)
        except SchemaMismatch as error:
            self.counters["refused_contributions"] += 1
            logger.warning("contribution of %s refused: %s", signed.signer, error)
            self._crowd.offend(signed.signer, Offence.MALFORMED)
            current.round.refused(signed.signer)
            return
        if not self._is_catching_up:  # what waited came at another time than now
            self._crowd.check_claim(signed.signer, header)
        self.archive.add_header(signed, header)
        if not current.round.heard_contribution(signed.signer, signed.id):
            self.counters["too_late"] += 1  # others may have taken it: it is kept for them
            return
        self._want(signed.id, sender)

    def check_header(self, header: messages.Contribution, state: OuterState) -> None:
        """Whether a header fits this architecture and these rules; SchemaMismatch says why not."""
        if header.architecture != self._cohort.architecture:
            raise SchemaMismatch("another architecture")
        rules = state.rules
        if header.codec != rules.codec:
            raise SchemaMismatch(f"codec {header.codec!r} (the swarm's is {rules.codec!r})")
        codec = codec_of(rules)
        sizes = [codec.packed_size(num_params) for _, num_params in self._cohort.shape]
        found = [(part.fragment, part.payload_bytes) for part in header.fragments]
        if found != list(enumerate(sizes)):
            raise SchemaMismatch("fragments or sizes that do not fit the architecture")
        if header.inner_steps < 1:
            raise SchemaMismatch("a contribution of no inner steps")
