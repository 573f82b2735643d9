"""Slows processes down to a share of a processor: by a quota, else by stopping them in turn.

Knows nothing of what they do.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import TracebackType
from typing import Self

import psutil

from neuroswarm.hardware.small_groups import SmallGroup

PERIOD_S = 0.1


class Slowed:
    """One process that gets so much of a processor, until the `with` block ends.

    Args:
        process: Its id.
        share: Of one processor, above 0, below 1.
    """

    def __init__(self, process: int, share: float) -> None:
        self.way = "quota of a control group"
        """How it is slowed down."""
        self._group: SmallGroup | None = None
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        try:
            self._group = SmallGroup.make(cpus=share)
            self._group.add(process)
        except OSError:
            self._let_go()
            self.way = "SIGSTOP and SIGCONT in turn"
            self._thread = threading.Thread(
                target=self._stop_and_go, args=(process, share), daemon=True
            )
            self._thread.start()

    def _stop_and_go(self, process: int, share: float) -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            slowed = psutil.Process(process)
            while not self._done.wait(share * PERIOD_S):
                slowed.send_signal(signal.SIGSTOP)
                self._done.wait((1 - share) * PERIOD_S)
                slowed.send_signal(signal.SIGCONT)

    def _let_go(self) -> None:
        if self._group is not None:
            self._group.remove()
            self._group = None

    def end(self) -> None:
        """Let it run as fast as it can."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
