"""A node that may send nothing: it leaves the swarm, and comes back when it may again.

Refuses to know of bytes, and of rounds.
"""

from __future__ import annotations

from collections.abc import Callable

from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.metering.allowance import Allowance
from neuroswarm.node.newcomer import Newcomer
from neuroswarm.node.vigil import Vigil


class Absence:
    """Leaves the swarm when the caps are used up, and comes back when a period begins."""

    def __init__(
        self,
        heartbeat: HeartbeatService,
        vigil: Vigil,
        newcomer: Newcomer,
        *,
        listen_s: float,
        is_stopping: Callable[[], bool],
    ) -> None:
        """Wire up.

        Args:
            heartbeat: Tells the peers.
            vigil: Keeps the node from speaking in rounds for a while.
            newcomer: And until it has caught up.
            listen_s: For how long at least once it is back: or it would take itself for alone.
            is_stopping: Whether the node is leaving anyway.
        """
        self._heartbeat = heartbeat
        self._vigil = vigil
        self._newcomer = newcomer
        self._listen_s = listen_s
        self._is_stopping = is_stopping

    def on_change(self, before: Allowance, now: Allowance) -> None:
        """The allowance has changed."""
        if self._is_stopping():
            return
        if now is Allowance.SILENT:
            self._heartbeat.leave()
        elif before is Allowance.SILENT:
            self._vigil.listen(self._listen_s)
            self._newcomer.comes_back()
            self._heartbeat.come_back()
