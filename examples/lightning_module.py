"""A LightningModule as a member of a swarm: the lines marked 1, 2 and 3 are new.

Needs `pip install lightning`. Start it twice, the second time with the address that the first one
logs:

    python examples/lightning_module.py --steps 1000
    python examples/lightning_module.py --steps 1000 --tracker http://127.0.0.1:7101
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from neuroswarm import SwarmNode, SwarmNodeConfig, SwarmOptimizer, create_swarm_node

BATCH, CONTEXT, VOCABULARY = 16, 32, 64


class NextByte(lightning.LightningModule):
    """Predicts each byte from the one before; every peer builds it alike."""

    node: SwarmNode

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Embedding(VOCABULARY, 32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, VOCABULARY)
        )

    def training_step(self, batch: list[Tensor], _number: int) -> Tensor:
        """The loss, which the optimiser learns as the result of Lightning's closure."""
        inputs, targets = batch
        return F.cross_entropy(self.net(inputs).flatten(0, 1), targets.flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser."""
        adamw = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return SwarmOptimizer(adamw, self.node, tokens_per_step=BATCH * CONTEXT)  # 2


def make_loader() -> DataLoader[tuple[Tensor, ...]]:
    """Windows of some text; somebody's data loader."""
    text = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8)
    windows = text.long().remainder(VOCABULARY).unfold(0, CONTEXT + 1, 1)
    pairs = TensorDataset(windows[:, :-1], windows[:, 1:])
    return DataLoader(pairs, batch_size=BATCH, shuffle=True)


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
        network={"name": "lightning-module", "grpc_port": 0},
        heartbeat={"interval_s": 1.0, "port": 0},
        diloco={"inner_steps": 20, "inner_steps_min": 10},
        state_dir=arguments.state_dir,
    )
    model = NextByte()
    model.node = node = create_swarm_node(  # 1
        None, arguments.port, arguments.tracker, config, model=model, enable_training=True
    )
    node.start()
    trainer = lightning.Trainer(
        max_steps=max(1, arguments.steps - node.total_training_steps),
        max_epochs=-1,
        gradient_clip_val=1.0,
        enable_checkpointing=False,  # the node keeps checkpoints, and goes on from them
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    try:
        trainer.fit(model, make_loader())
    finally:
        node.stop()  # 3
    logging.info("%s rounds committed", node.total_training_rounds)


if __name__ == "__main__":
    main()
