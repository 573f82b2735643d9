"""Runs a node alone and tells what it took. Not a test file: `test_small_container.py` starts it.

Waits for a line on standard input first, so that its process can be put into a control group.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(folder: Path, num_rounds: int) -> None:
    sys.stdin.readline()
    import torch

    from neuroswarm.config import SwarmNodeConfig
    from neuroswarm.hardware.process_limits import read_peak_bytes
    from neuroswarm.node.factory import create_swarm_node

    config = SwarmNodeConfig(
        network={"host": "127.0.0.1", "lan": False, "grpc_port": 0},
        heartbeat={"port": 0}, dht={"enabled": False}, rounds={"genesis_wait_s": 0.0},
        training={"dim": 128, "num_layers": 4, "eval_batches": 1},
        diloco={"inner_steps": 5, "inner_steps_min": 1},
        state_dir=folder,
    )  # fmt: skip
    node = create_swarm_node(None, 0, None, config, enable_training=True)
    node.start()
    ended = node.train(rounds=num_rounds)
    threads = node.core.require_parts().compute.run_sync(torch.get_num_threads)
    told = {
        "ended": ended,
        "torch_threads": threads,
        "hardware": node.get_stats()["hardware"],
        "tokens": node.total_tokens_processed,
        "peak_bytes": read_peak_bytes(),
    }
    node.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
