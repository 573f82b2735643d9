"""What a signal does before a node runs: nothing is at stake yet, so the process leaves.

Imports next to nothing: it comes before everything that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

LONG_LIVED = ("node", "tracker")
"""Commands that end well when they are asked to; the others were not finished."""


def leave_until_started(arguments: Sequence[str]) -> None:
    """End the process with code 0 on a signal, until `neuroswarm.cli.signals` takes over.

    Args:
        arguments: Of the command line, without the program. Other commands than those that live
            long are ended as by Ctrl-C, so that they remove what they have not finished.
    """
    if arguments[:1] and arguments[0] in LONG_LIVED:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
        hangup: int | None = getattr(signal, "SIGHUP", None)  # Windows has none
        if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # as nohup has it
            signal.signal(hangup, _leave)
    else:
        signal.signal(signal.SIGTERM, _unwind)


def leave(arguments: Sequence[str], code: int) -> NoReturn:
    """End the process; long-lived commands without taking the interpreter apart.

    All that matters is closed by then; with torch loaded, the rest takes seconds on small machines.
    """
    if arguments[:1] and arguments[0] in LONG_LIVED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _unwind(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)
