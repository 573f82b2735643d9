"""The command line of a `neuroswarm node` with a tiny model and short rounds, on free ports.

Refuses to know what a test does with the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

TINY_SETTINGS: Mapping[str, object] = {
    "heartbeat.interval_s": 0.5,
    "rounds.genesis_wait_s": 1.0,
    "rounds.min_grace_s": 0.3,
    "rounds.patience_s": 0.3,
    "diloco.inner_steps": 8,
    "diloco.inner_steps_min": 1,
    "training.dim": 16,
    "training.num_layers": 1,
    "training.num_heads": 1,
    "training.context": 32,
    "training.batch_size": 4,
    "training.warmup_steps": 0,
    "training.eval_batches": 1,
    "resources.max_cpu_threads": 1,
    "network.announce_host": "127.0.0.1",
}


def node_arguments(
    state_dir: Path, text: Path, trackers: Sequence[str] = (), **changes: object
) -> list[str]:
    """Everything after `neuroswarm`.

    Args:
        state_dir: The node's state folder.
        text: What it trains on.
        trackers: Whom it asks for peers.
        changes: Settings to change, with `__` for the dot: `rounds__patience_s=1.0`.
    """
    settings = dict(TINY_SETTINGS) | {name.replace("__", "."): v for name, v in changes.items()}
    arguments = ["node", "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0"]
    arguments += ["--heartbeat-port", "0", "--state-dir", str(state_dir), "--data", str(text)]
    arguments += [part for url in trackers for part in ("--tracker", url)]
    return arguments + [p for name, value in settings.items() for p in ("--set", f"{name}={value}")]
