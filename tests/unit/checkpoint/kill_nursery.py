"""Starts writers of checkpoints, kills each at a random moment, and looks what is left.

A process of its own, so that everything is imported once and every writer is a fork of it:
`python kill_nursery.py FOLDER SEED KILLS`. Writes what it saw as JSON; ends with 1 and the reason
when a restart does not reach a round that was announced as durable.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import signal
import sys
from pathlib import Path

import torch
from small_node import SmallNode

from neuroswarm.checkpoint.budget import ByteBudget
from neuroswarm.checkpoint.checkpointer import Checkpointer, Subject
from neuroswarm.checkpoint.durable import TEMPORARY
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import CheckpointStore, Recovered
from neuroswarm.clock import SystemClock
from neuroswarm.config.sections import CheckpointConfig
from neuroswarm.diloco.state import OuterState
from neuroswarm.hardware.facts import MachineFacts

LONGEST_DELAY_S = 0.03
MOST_WORDS = 2
READY = b"go\n"
CONFIG = CheckpointConfig(interval_s=0.002, max_checkpoints=2)


class Writer:
    """Trains, and has written whatever the schedule says, as fast as it goes."""

    def __init__(self, folder: Path, node: SmallNode, announce: int) -> None:
        self._node = node
        self._announce = announce
        self._steps = 0
        self._durable, self._saved = asyncio.Event(), asyncio.Event()
        subject = Subject(
            snapshot=self._snapshot,
            describe=lambda: {"round": node.outer.round},
            count_steps=lambda: self._steps,
            read_facts=MachineFacts,
            on_durable=self._on_durable,
            count_noted=lambda: 0,
            on_saved=lambda _round: self._saved.set(),
        )
        self._store = CheckpointStore(folder, CONFIG.max_checkpoints)
        clock = SystemClock()
        self._checkpointer = Checkpointer(
            self._store, subject, CONFIG, budget=ByteBudget(None, 0.0), clock=clock
        )

    async def run(self) -> None:
        """Go on from what is there until somebody kills this process."""
        found = self._store.load_latest()
        if found is None:
            self._checkpointer.note_outer(self._node.outer)
        else:
            restore(self._node, found)
            self._checkpointer.note_resumed(found)
        async with self._checkpointer:
            os.write(self._announce, READY)
            while True:
                self._node.round(1)
                self._steps += 1
                self._durable.clear()
                self._saved.clear()
                self._checkpointer.note_outer(self._node.outer)
                match self._node.outer.digest[0] % 3:  # rounds of different lengths
                    case 0:
                        await asyncio.sleep(0)
                    case 1:
                        await self._durable.wait()
                    case 2:
                        await self._saved.wait()

    async def _snapshot(self) -> Snapshot:
        return self._node.snapshot()

    async def _on_durable(self, state: OuterState) -> None:
        os.write(self._announce, b"%d\n" % state.round)
        self._durable.set()


def restore(node: SmallNode, found: Recovered) -> None:
    """What a restarted node does."""
    if found.snapshot is None:
        node.outer = found.outer
        node.trainer.load(found.outer.params)
        return
    node.restore(found.snapshot)
    node.move(found.outer)


def live_and_die(folder: Path, node: SmallNode, moments: random.Random) -> tuple[int, bool]:
    """Fork a writer and kill it; the last round that it announced, and whether it was writing.

    The moment is random: so many announcements, and then some milliseconds.
    """
    heard, announce = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(Writer(folder, node, announce).run())
        finally:
            os._exit(1)
    os.close(announce)
    said, num_words = b"", moments.randint(0, MOST_WORDS)
    while said.count(b"\n") < 1 + num_words and (more := os.read(heard, 4096)):
        said += more
    select.select([], [], [], moments.uniform(0, LONGEST_DELAY_S))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(heard, "rb") as rest:
        said += rest.read()
    if not said.startswith(READY) or not os.WIFSIGNALED(status):
        sys.exit("the writer ended by itself")
    rounds = [int(line) for line in said.removeprefix(READY).split()]
    return max(rounds, default=-1), any(folder.glob(f"{TEMPORARY}*"))


def main(folder: Path, seed: int, num_kills: int) -> None:
    """Kill so many writers."""
    torch.set_num_threads(1)
    gc.disable()
    gc.freeze()  # a collection would touch, and so copy, all memory of every fork
    node, moments = SmallNode(), random.Random(seed)
    durable, num_writing, num_apart, reached = -1, 0, 0, -1
    for kill in range(num_kills):
        announced, was_writing = live_and_die(folder, node, moments)
        durable = max(durable, announced)
        num_writing += was_writing
        found = CheckpointStore(folder, CONFIG.max_checkpoints).load_latest()
        reached = -1 if found is None else found.outer.round
        if reached < durable:
            sys.exit(f"kill {kill}: {durable} was durable, but a restart reaches {reached}")
        if list(folder.glob("*.damaged")):
            sys.exit(f"kill {kill}: something is damaged: {sorted(folder.iterdir())}")
        if found is not None:
            apart = found.snapshot is None or found.snapshot.outer.digest != found.outer.digest
            num_apart += apart
    sys.stdout.write(json.dumps({"durable": durable, "writing": num_writing, "apart": num_apart}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
