"""One run of a demo from the first process to the last: start, watch, disturb, stop.

Knows when things happen; refuses to know what is concluded from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.demo.children import Children
from neuroswarm.demo.display import Display, PeerView
from neuroswarm.demo.events import Committed, PeerRecord
from neuroswarm.demo.measures import last_steps
from neuroswarm.demo.peers import Peer
from neuroswarm.errors import DemoFailed

TICK_S = 0.2
READY_TIMEOUT_S = 120.0
LAST_ROUND_TIMEOUT_S = 60.0
"""Longest wait, once the time is over, for the peers to stand at the same round."""
AWAY_S = 20.0
"""Seconds between a peer's death and its second start."""


@dataclass(frozen=True, slots=True)
class Script:
    """How long a run lasts, and who is killed half-way."""

    title: str
    minutes: float | None = None
    """End after so long, counted from the first peer's being ready."""
    steps: int | None = None
    """End once an honest peer has taken so many inner steps."""
    ends_by_itself: bool = False
    """End once all processes have; `steps` is what the progress bar goes to."""
    victims: tuple[str, ...] = ()
    """Peers that get SIGKILL after half of `minutes` and are started again later."""


class SwarmRun:
    """Runs peers by a script.

    Args:
        peers: Not started; the first is started first, the others once it is ready.
        script: What to do.
        children: Owns the processes.
        display: Shows the run.
        clock: Measures it.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        script: Script,
        *,
        children: Children,
        display: Display,
        clock: Clock,
    ) -> None:
        self._peers = peers
        self._script = script
        self._children = children
        self._display = display
        self._clock = clock
        self._began: float | None = None
        self._killed_at: float | None = None
        self._restarted = False

    def run(self) -> list[PeerRecord]:
        """Carry the script out; returns what the peers' logs say.

        Raises:
            DemoFailed: a process ended with an error, or nothing moves on.
        """
        total = 60 * self._script.minutes if self._script.minutes else self._script.steps
        unit = "s" if self._script.minutes else "steps"
        self._display.begin(self._script.title, float(total or 1), unit)
        try:
            self._start()
            self._watch(self._is_over)
            if not self._script.ends_by_itself:
                self._settle()
                self._stop()
        finally:
            self._display.end()
        return [peer.record() for peer in self._peers]

    def _start(self) -> None:
        first, *others = self._peers
        first.start(self._children)
        deadline = self._clock.monotonic() + READY_TIMEOUT_S

        def is_ready() -> bool:
            if self._clock.monotonic() > deadline:
                raise DemoFailed(f"{first.name} is not ready after {READY_TIMEOUT_S:g} s")
            return first.is_ready() or first.has_ended()

        self._watch(is_ready)
        self._began = self._clock.monotonic()
        for peer in others:
            peer.start(self._children)

    def _watch(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            for peer in self._peers:
                peer.poll()
                if peer.has_ended() and not self._script.ends_by_itself:
                    raise DemoFailed(f"{peer.name} left before the end")
            self._disturb()
            self._display.show([view_of(peer) for peer in self._peers], self._done())
            time.sleep(TICK_S)

    def _elapsed_s(self) -> float:
        """Since the first peer was ready; 0 before."""
        return 0.0 if self._began is None else self._clock.monotonic() - self._began

    def _done(self) -> float:
        return self._elapsed_s() if self._script.minutes else self._most_steps()

    def _most_steps(self) -> int:
        return max(last_steps([peer.record() for peer in self._honest()]))

    def _honest(self) -> list[Peer]:
        return [peer for peer in self._peers if not peer.is_hostile]

    def _is_over(self) -> bool:
        script = self._script
        if script.ends_by_itself:
            return all(peer.has_ended() for peer in self._peers)
        if script.minutes is not None:
            return self._elapsed_s() >= 60 * script.minutes
        return self._most_steps() >= (script.steps or 0)

    def _disturb(self) -> None:
        """Kill the victims when it is time, and bring them back later."""
        now, victims = self._clock.monotonic(), self._script.victims
        if not victims or self._script.minutes is None:
            return
        if self._killed_at is None:
            if self._elapsed_s() >= 30 * self._script.minutes:
                self._killed_at = now
                for peer in self._named(victims):
                    peer.kill()
                self._display.say(f"killed {', '.join(victims)} (SIGKILL)")
        elif not self._restarted and now - self._killed_at >= AWAY_S:
            self._restarted = True
            for peer in self._named(victims):
                peer.start(self._children)
            self._display.say(f"started {', '.join(victims)} again")

    def _named(self, names: Sequence[str]) -> list[Peer]:
        return [peer for peer in self._peers if peer.name in names]

    def _settle(self) -> None:
        """Wait until all honest peers stand at the same round, so that all have reported it.

        When time ended the run, a last full round is waited for too.
        """
        deadline = self._clock.monotonic() + LAST_ROUND_TIMEOUT_S
        before = max(map(_round, self._honest())) if self._script.minutes else 0

        def is_settled() -> bool:
            rounds = {_round(peer) for peer in self._honest()}
            is_late = self._clock.monotonic() > deadline
            return is_late or (len(rounds) == 1 and max(rounds) > before)

        self._watch(is_settled)

    def _stop(self) -> None:
        for peer in self._peers:
            peer.has_ended()
        codes = self._children.stop_all()
        for peer in self._peers:
            peer.note_end()
            peer.poll()
        if any(codes):
            raise DemoFailed(f"not all processes ended well: exit codes {codes}")


def _round(peer: Peer) -> int:
    return max((e.round for e in peer.events if isinstance(e, Committed)), default=0)


def view_of(peer: Peer) -> PeerView:
    """A peer as the display shows it."""
    record = peer.record()
    last = record.committed[-1] if record.committed else None
    if not peer.is_running:
        state = "killed" if peer.lives else "waiting"
    elif last is None:
        state = "starting"
    else:
        state = "hostile" if peer.is_hostile else "training"
        if len(peer.lives) > 1:
            state = "back"
    return PeerView(
        name=peer.name,
        state=state,
        is_honest=not peer.is_hostile,
        round=0 if last is None else last.round,
        digest="" if last is None else last.digest[:8],
        steps=0 if last is None else last.total_inner_steps,
        loss=None if last is None else last.held_out_loss,
        foreign_used=sum(e.foreign_used for e in record.committed),
        bytes_sent=0 if last is None else last.bytes_sent,
        repairs=sum(e.is_repair for e in record.committed),
    )
