"""A training loop of one's own as a member of a swarm: the lines marked 1, 2 and 3 are new.

Start it twice, the second time with the address that the first one logs:

    python examples/plain_loop.py --steps 1000
    python examples/plain_loop.py --steps 1000 --tracker http://127.0.0.1:7101
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm import SwarmNodeConfig, SwarmOptimizer, create_swarm_node

BATCH, CONTEXT, VOCABULARY = 16, 32, 64


def make_model() -> nn.Module:
    """Predicts each byte from the one before; every peer builds it alike."""
    return nn.Sequential(
        nn.Embedding(VOCABULARY, 32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, VOCABULARY)
    )


def make_batch(number: int) -> tuple[Tensor, Tensor]:
    """Batch `number` of some text; somebody's data loader."""
    text = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8)
    source = torch.Generator().manual_seed(number)
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=source)
    windows = torch.stack([text[s : s + CONTEXT + 1].long() % VOCABULARY for s in starts])
    return windows[:, :-1], windows[:, 1:]


def parse_arguments() -> argparse.Namespace:
    """Whom to join, and how long."""
    parser = argparse.ArgumentParser(description="Train as a member of a swarm.")
    parser.add_argument("--tracker", help="address of any node, like http://10.0.0.5:7101")
    parser.add_argument("--port", type=int, default=0, help="HTTP port; 0 takes a free one")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--state-dir", type=Path, help="where to go on from, and to save")
    return parser.parse_args()


def main() -> None:
    """Train."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments = parse_arguments()
    config = SwarmNodeConfig(
        network={"name": "plain-loop", "grpc_port": 0},
        heartbeat={"interval_s": 1.0, "port": 0},
        diloco={"inner_steps": 20, "inner_steps_min": 10},
        state_dir=arguments.state_dir,
    )
    model = make_model()
    node = create_swarm_node(  # 1
        None, arguments.port, arguments.tracker, config, model=model, enable_training=True
    )
    node.start()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = SwarmOptimizer(adamw, node)  # 2
    try:
        for number in range(optimizer.num_steps, arguments.steps):
            inputs, targets = make_batch(number)
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(loss=loss, tokens=targets.numel())
            optimizer.zero_grad()
            if number % 100 == 0:
                logging.info("step %d: loss %.3f", number, loss.item())
    finally:
        node.stop()  # 3
    logging.info("%s rounds committed", node.total_training_rounds)


if __name__ == "__main__":
    main()
