"""Starts the process of a further device so that it ends with its node even while it imports torch.

Imports the standard library alone before it watches.
"""

from __future__ import annotations

import os
import select
import threading

LOOK_S = 0.5


class StartWatch:
    """Ends this process when nobody is at the other end of its standard input any more.

    Threads: one of its own, until `stop`.
    """

    def __init__(self) -> None:
        """Watch from now on."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="start-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave it to whoever reads the input from now on."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        looking = select.poll()
        looking.register(0, select.POLLHUP)  # and nothing of what there is to read
        while not self._stopped.is_set():
            if looking.poll(LOOK_S * 1000):
                os._exit(0)


def main() -> None:
    """Import what the device needs, which takes long, and compute until the node ends."""
    watch = StartWatch()
    from neuroswarm.node import rank_main

    watch.stop()
    rank_main.main()
