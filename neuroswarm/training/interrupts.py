"""Puts signals off for the short time in which an interrupt would leave something half done.

Knows nothing of what that is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], object]


class Interrupts:
    """Ctrl-C and termination, on the thread that handles them: the main one.

    On other threads nothing is done: no signal interrupts them.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        """Those that are put off now."""
        self._pending: tuple[int, FrameType | None] | None = None

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Inside, signals wait; the newest is handled on leaving."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._hold_back()
        try:
            yield
        finally:
            self._let_through()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Inside of `held_back`: what may be interrupted after all."""
        if not self._handlers:
            yield
            return
        self._let_through()
        yield  # after an error they stay allowed: `held_back` is being left
        self._hold_back()

    def _hold_back(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):  # else the system handles it: nothing is raised here
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending = (number, frame)

    def _let_through(self) -> None:
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            signal.signal(number, handler)
        pending, self._pending = self._pending, None
        if pending is not None:
            handlers[pending[0]](*pending)
