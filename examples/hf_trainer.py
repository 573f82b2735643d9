"""The Trainer of transformers as a member of a swarm: the lines marked 1, 2 and 3 are new.

Needs `pip install 'neuroswarm[hf]'`. Start it twice, the second time with the address that the
first one logs:

    python examples/hf_trainer.py --steps 1000
    python examples/hf_trainer.py --steps 1000 --tracker http://127.0.0.1:7101
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from neuroswarm import SwarmNodeConfig, SwarmOptimizer, create_swarm_node

BATCH, CONTEXT, VOCABULARY = 8, 32, 128


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of some text, a byte a token; somebody's data set."""

    def __init__(self) -> None:
        text = bytearray(Path(__file__).read_bytes())
        self.tokens = torch.frombuffer(text, dtype=torch.uint8).long() % VOCABULARY

    def __len__(self) -> int:
        return len(self.tokens) - CONTEXT

    def __getitem__(self, start: int) -> dict[str, Tensor]:
        window = self.tokens[start : start + CONTEXT]
        return {"input_ids": window, "labels": window}


def make_model() -> LlamaForCausalLM:
    """A tiny model from a configuration; every peer builds it alike."""
    shape = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=VOCABULARY,
    )
    return LlamaForCausalLM(shape)


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
        network={"name": "hf-trainer", "grpc_port": 0},
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
    optimizer = SwarmOptimizer(adamw, node, tokens_per_step=BATCH * CONTEXT)  # 2
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            per_device_train_batch_size=BATCH,
            max_steps=max(1, arguments.steps - optimizer.num_steps),
            lr_scheduler_type="constant",
            logging_steps=100,
            save_strategy="no",  # the node keeps checkpoints, and goes on from them
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Windows(),
        optimizers=(optimizer, None),
    )
    try:
        trainer.train()
    finally:
        node.stop()  # 3
    logging.info("%s rounds committed", node.total_training_rounds)


if __name__ == "__main__":
    main()
