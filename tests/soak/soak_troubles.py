"""Carries a script's troubles out, one after the other, and notes how the swarm came through.

Knows how each is done and undone.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from soak_peers import SoakFailed
from soak_script import NUM_SPARED, TIMEOUTS, Kind, Phase, Trouble
from soak_swarm import HEAL_S, SoakSwarm, describe_groups

LEAVE_S = 30.0
"""Longest graceful leave."""
CUT_PACE_S = 0.15
"""Seconds between two nodes' deaths in a power cut."""


@dataclass
class Struck:
    """One trouble as it went."""

    trouble: Trouble
    began_at: float
    """Wall clock, seconds, as all times here."""
    round_before: int
    ended_at: float | None = None
    round_after: int = 0
    one_at: float | None = None
    """When all stood on one lineage again."""
    round_one: int = 0
    left_s: float | None = None
    """How long the graceful leave took."""
    donor: str = "not struck"
    """What became of the donor, if there is one."""
    donor_at: float | None = None
    """When that was."""


class Troubles:
    """The script in progress."""

    def __init__(self, swarm: SoakSwarm, script: list[Trouble], phases: list[Phase]) -> None:
        """Nothing has begun."""
        self.struck: list[Struck] = []
        self.counts: Counter[str] = Counter()
        self.deferred_s = 0.0
        """How much later than planned the last one began."""
        self._swarm = swarm
        self._waiting = list(script)
        self._phases = list(phases)
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._donor: int | None = None

    @property
    def current(self) -> Struck | None:
        """The trouble in force, or that the swarm has not recovered from yet."""
        last = self.struck[-1] if self.struck else None
        return last if last is not None and last.one_at is None else None

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing is in force."""
        return not self._waiting and self.current is None

    @property
    def num_waiting(self) -> int:
        """Troubles that have not begun."""
        return len(self._waiting)

    def drop_waiting(self) -> None:
        """Begin no further ones."""
        self._waiting.clear()
        self._phases.clear()

    def advance(self, elapsed_s: float) -> None:
        """Do and undo what is due; SoakFailed if the swarm does not recover."""
        now = time.time()
        self._switch_timeouts(elapsed_s)
        while self._due and self._due[0][0] <= now:
            self._due.pop(0)[1]()
        current = self.current
        if current is None:
            if self._waiting and elapsed_s >= self._waiting[0].at_s and self._swarm.is_all_up:
                self.deferred_s = elapsed_s - self._waiting[0].at_s
                self._begin(self._waiting.pop(0), now)
        elif current.ended_at is not None:
            self._watch_recovery(current, now)
        else:
            self._watch(current, now)
            if self._is_done(current, now):
                self._end(current)
        self._swarm.give_orders()

    def describe(self) -> str:
        """What is in force, for people."""
        current = self.current
        parts = [f"timeouts {self._swarm.timeouts:.0%}"] if self._swarm.timeouts else []
        if current is not None:
            victims = current.trouble.victims
            where = (
                describe_groups(self._swarm, victims)
                if current.trouble.kind is Kind.PARTITION
                else ",".join(map(str, victims))
            )
            state = "after " if current.ended_at is not None else ""
            parts.append(f"{state}{current.trouble.kind.value} ({where})")
        return "; ".join(parts) or "none"

    def _switch_timeouts(self, elapsed_s: float) -> None:
        while self._phases and elapsed_s > self._phases[0].ends_at_s:
            self._phases.pop(0)
        is_on = bool(self._phases) and elapsed_s >= self._phases[0].at_s
        if is_on and not self._swarm.timeouts:
            self.counts["phases of forced timeouts"] += 1
        self._swarm.timeouts = TIMEOUTS if is_on else 0.0

    # -- doing -----------------------------------------------------------------------

    def _begin(self, trouble: Trouble, now: float) -> None:
        self.struck.append(Struck(trouble, now, self._swarm.round))
        self.counts[trouble.kind.value] += 1
        victims, kind = trouble.victims, trouble.kind
        if kind is Kind.POWER_CUT:
            for index, number in enumerate(victims):
                self._due.append((now + index * CUT_PACE_S, lambda n=number: self._kill(n)))
        elif kind is Kind.PARTITION:
            self._swarm.cut_off = frozenset(victims)
        elif kind is Kind.STOP:
            self._signal(victims[0], signal.SIGSTOP)
        elif kind is Kind.LEAVE:
            self._signal(victims[0], signal.SIGTERM)
        else:
            for number in victims:
                self._kill(number)
        if kind is Kind.DONOR_DEATH:
            self._swarm.slow = victims[0]
            self._start(victims[0], is_new=True)

    def _watch(self, struck: Struck, now: float) -> None:
        """What depends on what the nodes do."""
        if struck.trouble.kind is Kind.LEAVE and struck.left_s is None:
            peer = self._swarm.peers[struck.trouble.victims[0]]
            took_s = now - struck.began_at
            if peer.finish_leaving():
                struck.left_s = took_s
            elif took_s > LEAVE_S * self._swarm.load_factor():
                raise SoakFailed(f"{peer.name} has not left {took_s:.0f} s after SIGTERM")
        if struck.trouble.kind is Kind.DONOR_DEATH and self._donor is None:
            self._strike_donor(struck)

    def _is_done(self, struck: Struck, now: float) -> bool:
        """Whether it is time to undo it."""
        if struck.trouble.kind is Kind.LEAVE and struck.left_s is None:
            return False
        began_at = struck.began_at
        if struck.trouble.kind is Kind.DONOR_DEATH:
            if struck.donor_at is None:
                return self._swarm.peers[struck.trouble.victims[0]].is_ready
            began_at = struck.donor_at
        return now >= began_at + struck.trouble.lasts_s and not self._due

    def _strike_donor(self, struck: Struck) -> None:
        joiner = self._swarm.peers[struck.trouble.victims[0]]
        if not joiner.state_sources:
            return
        ports = [peer.ports.grpc for peer in self._swarm.peers]
        number = self._donor = ports.index(joiner.state_sources[-1])
        name = self._swarm.peers[number].name
        if number < NUM_SPARED:
            struck.donor = f"{name} stopped"
            self._signal(number, signal.SIGSTOP)
        else:
            struck.donor = f"{name} killed"
            self._kill(number)
        struck.donor_at = time.time()
        self.counts["donors struck"] += 1

    # -- undoing ---------------------------------------------------------------------

    def _end(self, struck: Struck) -> None:
        trouble = struck.trouble
        if trouble.kind is Kind.PARTITION:
            self._swarm.cut_off = frozenset()
        elif trouble.kind is Kind.STOP:
            self._signal(trouble.victims[0], signal.SIGCONT)
        elif trouble.kind is Kind.DONOR_DEATH:
            self._revive_donor()
        else:
            is_new = trouble.kind in (Kind.KILL_EMPTY, Kind.JOIN_TWO)
            for number in trouble.victims:
                self._start(number, is_new=is_new)
        struck.ended_at, struck.round_after = time.time(), self._swarm.round

    def _revive_donor(self) -> None:
        self._swarm.slow = None
        if self._donor is None:
            return
        if self._swarm.peers[self._donor].is_running:
            self._signal(self._donor, signal.SIGCONT)
        else:
            self._start(self._donor, is_new=False)
        self._donor = None

    def _watch_recovery(self, struck: Struck, now: float) -> None:
        assert struck.ended_at is not None, "asked after the end"
        if self._swarm.is_one(struck.ended_at):
            struck.one_at, struck.round_one = now, self._swarm.round
        elif now - struck.ended_at > HEAL_S * self._swarm.load_factor():
            tips = {peer.name: peer.track.tip for peer in self._swarm.peers}
            raise SoakFailed(
                f"not on one lineage {now - struck.ended_at:.0f} s after "
                f"{struck.trouble.kind.value} of {struck.trouble.victims}: rounds {tips}"
            )

    def _kill(self, number: int) -> None:
        self._swarm.peers[number].kill()
        self.counts["kill -9"] += 1

    def _start(self, number: int, *, is_new: bool) -> None:
        self._swarm.start(number, is_new=is_new)
        self.counts["starts on an empty folder" if is_new else "starts on the old folder"] += 1

    def _signal(self, number: int, which: signal.Signals) -> None:
        self._swarm.peers[number].signal(which)
        self.counts[which.name] += 1

    def figures(self, began: float) -> list[dict[str, Any]]:
        """How each trouble went; times in seconds after the begin."""
        return [_figures(struck, began) for struck in self.struck]


def _figures(struck: Struck, began: float) -> dict[str, Any]:
    trouble = struck.trouble
    has_recovered = struck.one_at is not None and struck.ended_at is not None
    rounds = max(0, struck.round_one - struck.round_after)
    values = {
        "kind": trouble.kind.value,
        "victims": list(trouble.victims),
        "planned_at_s": trouble.at_s,
        "began_at_s": round(struck.began_at - began, 1),
        "lasted_s": None
        if struck.ended_at is None
        else round(struck.ended_at - struck.began_at, 1),
        "one_lineage_after_s": round(struck.one_at - struck.ended_at, 1) if has_recovered else None,
        "one_lineage_after_rounds": rounds if has_recovered else None,
    }
    if struck.left_s is not None:
        values["left_after_s"] = round(struck.left_s, 1)
    if trouble.kind is Kind.DONOR_DEATH:
        values["donor"] = struck.donor
    return values
