"""The life of one round as a state machine: from inner steps to the agreed set (DESIGN 4.1-4.5).

Commit, then reveal: payloads are given out only once two thirds of the voters have sealed the
round, that is, take no further header. Whoever waits to see a payload before it publishes is then
missing from more than a third of the ballots, as long as fewer than a quarter are hostile.

Everything is an input: authentic statements, the electorate, the time. Refuses to know how
statements travel, what payloads hold, or what is done with the agreed set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from neuroswarm.config import RoundConfig
from neuroswarm.rounds.phases import Action, Instant, Phase
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import set_hash

Ids = tuple[bytes, ...]


class Round:
    """One round at one node.

    `poll` returns at most one action and changes the phase as if it had been done; the
    driver calls it until it returns None, then waits for a statement or for `deadline`.
    """

    def __init__(self, me: NodeId, *, started_at: float, cfg: RoundConfig) -> None:
        self._me = me
        self._cfg = cfg
        self.phase = Phase.TRAINING
        self.deadline: float | None = None
        """When to poll at the latest, seconds of the monotonic clock."""
        self.candidate: Ids = ()
        self.decided: Ids = ()
        self.is_revealed = False
        """Whether payloads may be given out."""
        self.closed_at: float | None = None
        self._started_at = started_at
        self._quorum_at: float | None = None
        self._published_at = started_at
        self._sealed_at = started_at
        self._revealed_at = started_at
        self._contagion_at: dict[Phase, float] = {}
        self._confirmed_at = started_at
        self._said_ready = False
        self._publishing = False
        self._ready: set[NodeId] = set()
        self._skipped: set[NodeId] = set()
        self._published: dict[NodeId, bytes] = {}
        self._held: dict[bytes, NodeId] = {}
        self._seals: set[NodeId] = set()
        self._amendments: set[bytes] = set()
        self._ballots: dict[NodeId, Ids] = {}
        self._confirms: dict[NodeId, Ids] = {}
        self._excluded: set[NodeId] = set()

    # -- statements ------------------------------------------------------------------

    def heard_ready(self, signer: NodeId) -> None:
        """A peer has taken its inner steps."""
        self._ready.add(signer)

    def heard_skip(self, signer: NodeId) -> None:
        """A peer publishes nothing in this round."""
        self._skipped.add(signer)

    def heard_contribution(self, signer: NodeId, contribution: bytes) -> bool:
        """A peer has published; its payload is not held yet.

        Returns:
            False if it comes too late: this node has sealed the round without it.
        """
        if self.is_sealed and self._published.get(signer) != contribution:
            return False
        self._published.setdefault(signer, contribution)
        return True

    def held(self, signer: NodeId, contribution: bytes) -> None:
        """A contribution is held whole and passed every objective check."""
        if signer not in self._excluded and self.heard_contribution(signer, contribution):
            self._held[contribution] = signer

    def heard_amendment(self, amendment: bytes) -> None:
        """An amendment by the owner that may follow the present rules: to be put to the ballot."""
        self._amendments.add(amendment)
        if len(self._amendments) > limits.MAX_AMENDMENTS:
            self._amendments.remove(max(self._amendments))  # the same ones stay at every peer

    def heard_seal(self, signer: NodeId) -> None:
        """A peer takes no further contributions."""
        self._seals.add(signer)

    def refused(self, signer: NodeId) -> None:
        """A peer's contribution failed an objective check: as if it had skipped."""
        self._skipped.add(signer)

    def heard_ballot(self, signer: NodeId, contributions: Ids) -> None:
        """A peer has closed the round with these contributions."""
        self._ballots.setdefault(signer, contributions)

    def heard_confirm(self, signer: NodeId, contributions: Ids) -> None:
        """A peer finds this set agreed."""
        self._confirms.setdefault(signer, contributions)

    def exclude(self, signer: NodeId) -> None:
        """A signer equivocated: nothing that it said in this round counts."""
        self._excluded.add(signer)
        self._held = {c: s for c, s in self._held.items() if s != signer}

    def published(self, contribution: bytes, now: float) -> None:
        """The driver published this node's own contribution."""
        self.held(self._me, contribution)
        self._enter_collecting(now)

    def skipped(self, now: float) -> None:
        """The driver signed a skip, or takes no part in publishing."""
        self._skipped.add(self._me)
        self._enter_collecting(now)

    # -- what the driver reads -------------------------------------------------------

    @property
    def is_sealed(self) -> bool:
        """Whether no further contribution is taken."""
        return self.phase not in (Phase.TRAINING, Phase.COLLECTING)

    @property
    def ballot(self) -> Ids:
        """Ids of the contributions held whole and of the amendments, ascending."""
        return tuple(sorted(self._held.keys() | self._amendments))

    @property
    def ballot_signers(self) -> frozenset[NodeId]:
        """Who has closed the round, as far as heard here."""
        return frozenset(self._ballots)

    @property
    def num_heard(self) -> int:
        """The most signers that one of ready, skip and seal was heard of."""
        return max(len(self._ready), len(self._skipped), len(self._seals))

    @property
    def publishers(self) -> Mapping[NodeId, bytes]:
        """Contribution ids heard of, by signer."""
        return self._published

    def wants(self, contribution: bytes) -> bool:
        """Whether a contribution is not held and may still matter."""
        if contribution in self._held or self.phase is Phase.DECIDED:
            return False
        return not self.is_sealed or contribution in self._published.values()

    def confirmers(self, contributions: Ids) -> frozenset[NodeId]:
        """Who confirmed exactly this set."""
        return frozenset(s for s, ids in self._voices(self._confirms) if ids == contributions)

    # -- decisions -------------------------------------------------------------------

    def poll(self, at: Instant) -> Action | None:
        """Decide what is due at this instant, if anything, and note when to be asked again."""
        self.deadline = None
        agreed = self._supermajority_set(at)
        if agreed is not None:
            return self._conclude(agreed, at)
        if not at.is_voter:
            return None
        match self.phase:
            case Phase.TRAINING:
                return self._poll_training(at)
            case Phase.COLLECTING:
                return self._poll_collecting(at)
            case Phase.SEALED:
                return self._poll_sealed(at)
            case Phase.CLOSED:
                return self._poll_closed(at)
            case Phase.CONFIRMED:
                return self._poll_confirmed(at)
            case Phase.DECIDED:
                return None

    def _poll_training(self, at: Instant) -> Action | None:
        if self._publishing:
            return None
        if at.inner_steps >= at.steps_wanted:
            self._ready.add(self._me)
            if not self._said_ready:
                self._said_ready = True
                return Action.SAY_READY
        if self._should_publish(at):
            self._publishing = True
            return Action.PUBLISH
        return None

    def _should_publish(self, at: Instant) -> bool:
        if at.is_deferring:
            return False
        live, quorum = at.electorate.live, at.electorate.publish_quorum
        others_out = (self._published.keys() & live) - self._excluded - {self._me}
        if len(others_out) >= quorum:
            return True  # they saw the quorum and the grace pass: deltas stay comparable
        ready = (self._ready | self._published.keys()) & (live - self._excluded)
        if len(ready) < quorum:
            return False
        if self._quorum_at is None:
            self._quorum_at = at.now
        waiting = live - ready - self._skipped - self._excluded
        due = self._quorum_at + self._grace_s(self._quorum_at, at)
        return not waiting or self._is_due(due, at.now)

    def _poll_collecting(self, at: Instant) -> Action | None:
        live = at.electorate.live - self._excluded
        published = self._published.keys() - self._excluded
        if not live <= (published | self._skipped) and not self._is_over(
            at, since=self._published_at, heard=self._seals | self._ballots.keys(), have=published
        ):
            return None
        self.phase, self._sealed_at = Phase.SEALED, at.now
        self._seals.add(self._me)
        return Action.SEND_SEAL

    def _poll_sealed(self, at: Instant) -> Action | None:
        if not self.is_revealed:
            if not self._may_reveal(at):
                return None
            self.is_revealed, self._revealed_at = True, at.now
            return Action.REVEAL
        live, held = at.electorate.live - self._excluded, set(self._held.values())
        missing = (self._published.keys() & live) - held - self._skipped
        # A ballot hurries the others on: not while they are pulling what it lists from here.
        patient = replace(at, payload_s=max(at.payload_s, at.giving_s))
        if (missing or at.giving_s > 0) and not self._is_over(
            patient, since=self._revealed_at, heard=self._ballots.keys(), have=held
        ):
            return None
        self.phase, self.closed_at = Phase.CLOSED, at.now
        self._ballots.setdefault(self._me, self.ballot)
        return Action.SEND_BALLOT

    def _may_reveal(self, at: Instant) -> bool:
        live = at.electorate.live
        if at.electorate.is_supermajority(len(self._seals & live)):
            return True
        if len((self._ballots.keys() & live) - {self._me}) > len(live) // 4:
            return True  # not all of them are hostile, so one of them saw the seals
        # Without the seals: no sooner than the others stop taking headers by themselves, or one
        # who is told a skip of its own could be hurried to give its payload away.
        others_stop_s = self._published_at + self._grace_s(self._published_at, at)
        since = max(self._sealed_at, others_stop_s) + self._cfg.contagion_s
        return self._is_due(since + self._cfg.seal_deadline_s, at.now)

    def _is_over(
        self, at: Instant, *, since: float, heard: Collection[NodeId], have: Collection[NodeId]
    ) -> bool:
        """Whether this phase ends without all peers.

        Args:
            at: The instant.
            since: When the phase began.
            heard: Who is known to have ended it: ending is contagious, since different times
                are what splits sets.
            have: Whose part is there.
        """
        live = at.electorate.live - self._excluded
        if len((live & set(heard)) - {self._me}) > len(live) // 4:
            due = at.now + self._scaled(self._cfg.contagion_s, at)
            if self._is_due(self._contagion_at.setdefault(self.phase, due), at.now):
                return True
        if self._is_due(since + self._cfg.collect_deadline_s, at.now):
            return True
        enough = len(have) >= at.electorate.min_contributions
        if enough and 2 * len((set(have) | self._skipped) & live) >= len(live):
            return self._is_due(since + self._grace_s(since, at), at.now)
        return False

    def _poll_closed(self, at: Instant) -> Action | None:
        assert self.closed_at is not None, "a round is closed before it is CLOSED"
        missing = at.electorate.expected_ballots - self._ballots.keys() - self._excluded
        is_alone = at.electorate.live <= {self._me}
        settle_s = 0.0 if is_alone else self._scaled(self._cfg.settle_s, at)
        settled = self._is_due(self.closed_at + settle_s, at.now)
        late = self._is_due(self.closed_at + self._cfg.ballot_deadline_s, at.now)
        if not late and (missing or not settled):
            return None
        voters = at.electorate.live | {self._me}
        heard = [ids for signer, ids in self._voices(self._ballots) if signer in voters]
        self.candidate = choose_set(heard)
        self.phase, self._confirmed_at = Phase.CONFIRMED, at.now
        self._confirms.setdefault(self._me, self.candidate)
        return Action.SEND_CONFIRM

    def _poll_confirmed(self, at: Instant) -> Action | None:
        agreed = self._supermajority_set(at)
        if agreed is not None:
            return self._conclude(agreed, at)
        if not self._is_due(self._confirmed_at + self._cfg.confirm_deadline_s, at.now):
            return None
        counts = self._confirm_counts(at)
        if not counts:
            return None  # nobody whose voice counts, and this node's own was not to be noted
        plausible = [ids for ids, n in counts.items() if at.electorate.is_plausible(n)]
        most = max(counts.values())
        return self._conclude(
            min(plausible or [i for i, n in counts.items() if n == most], key=set_hash), at
        )

    def _supermajority_set(self, at: Instant) -> Ids | None:
        if self.phase is Phase.DECIDED or self._publishing:
            return None
        for ids, count in self._confirm_counts(at).items():
            if at.electorate.is_supermajority(count):
                return ids
        return None

    def _conclude(self, agreed: Ids, at: Instant) -> Action:
        if at.is_voter and self._me not in self._confirms:
            # Late, but the swarm has decided: this node's voice supports that set.
            self._confirms[self._me] = self.candidate = agreed
            self.phase, self._confirmed_at = Phase.CONFIRMED, at.now
            return Action.SEND_CONFIRM
        self.phase, self.decided = Phase.DECIDED, agreed
        return Action.DECIDE

    def _confirm_counts(self, at: Instant) -> dict[Ids, int]:
        counts: dict[Ids, int] = {}
        for signer, ids in self._voices(self._confirms):
            if signer in at.electorate.live:
                counts[ids] = counts.get(ids, 0) + 1
        return counts

    def _voices(self, said: Mapping[NodeId, Ids]) -> list[tuple[NodeId, Ids]]:
        return [(signer, ids) for signer, ids in said.items() if signer not in self._excluded]

    def _enter_collecting(self, now: float) -> None:
        self._publishing = False
        if self.phase is Phase.TRAINING:
            self.phase, self._published_at = Phase.COLLECTING, now

    def _grace_s(self, since: float, at: Instant) -> float:
        return max(
            self._cfg.min_grace_s,
            self._cfg.grace_fraction * (since - self._started_at),
            1.5 * at.payload_s,
        )

    def _scaled(self, duration_s: float, at: Instant) -> float:
        """The time for slow links, or 5 round trips to the slowest live peer if that is less."""
        if at.slowest_rtt_s is None:
            return duration_s
        return min(duration_s, max(self._cfg.min_settle_s, 5 * at.slowest_rtt_s))

    def _is_due(self, deadline: float, now: float) -> bool:
        if now >= deadline:
            return True
        if self.deadline is None or deadline < self.deadline:
            self.deadline = deadline
        return False


def choose_set(ballots: Iterable[Ids]) -> Ids:
    """Contributions that at least 2/3 of the ballots list, ascending (DESIGN 4.5)."""
    heard, counts = 0, dict[bytes, int]()
    for ids in ballots:
        heard += 1
        for contribution in ids:
            counts[contribution] = counts.get(contribution, 0) + 1
    return tuple(sorted(c for c, count in counts.items() if 3 * count >= 2 * heard))
