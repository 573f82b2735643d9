"""Imports torch and trains one step, in a process of its own; says how far it came.

`python -m neuroswarm.doctor.torch_child` reads settings as JSON from standard input and writes a
JSON object a line: what it is about to do (`stage`), then what it found. A processor that cannot
run this torch kills it, and the last line tells where. Refuses to judge.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from neuroswarm.doctor.import_child import import_both, say

MAX_INPUT_BYTES = 1024 * 1024
WARM_STEPS = 2
TIMED_STEPS = 3


def main() -> None:
    """Look, and say every step of it."""
    settings = json.loads(sys.stdin.read(MAX_INPUT_BYTES))
    import_both()
    say(stage="check its arithmetic")
    import torch

    from neuroswarm.diloco.known_answer import verify_arithmetic

    torch.set_num_threads(1)  # more wait for one another where others take the processor
    verify_arithmetic()
    say(stage="train")
    asyncio.run(_train(settings))
    say(stage="", **_memory())


async def _train(settings: dict[str, Any]) -> None:
    import torch

    from neuroswarm.clock import SystemClock
    from neuroswarm.config import SwarmNodeConfig
    from neuroswarm.config.model_shape import BUILT_IN
    from neuroswarm.node.device_work import make_devices, plan_devices
    from neuroswarm.node.workload import Workload
    from neuroswarm.training.devices import share_threads
    from neuroswarm.training.threads import choose_num_threads

    config = SwarmNodeConfig.model_validate(settings).for_model(is_handed_over=False)
    if config.training.model not in BUILT_IN:
        say(own_model=config.training.model)
    planned = plan_devices(config, Workload())
    num_threads = choose_num_threads(config.resources.max_cpu_threads)
    num_threads = share_threads(len(planned), planned[0], num_threads)
    torch.set_num_threads(num_threads)
    length = 64 * (config.training.context + 1)
    text = torch.randint(2, (length,), generator=torch.Generator().manual_seed(0))
    prepared = Workload(data=text).prepare(config, SystemClock())
    trainer = prepared.trainer
    async with make_devices(config, prepared, planned) as devices:
        for _ in range(WARM_STEPS):
            trainer.step()
        steps = [trainer.step() for _ in range(TIMED_STEPS)]
        states = devices.get_status()
    if trainer.batching.num_halvings:  # a node might run, but has nothing left for rounds
        raise RuntimeError(f"out of memory: only {trainer.batching.piece} windows at once fit")
    say(
        device=str(trainer.device),
        devices={found["device"]: found["state"] for found in states},
        num_threads=num_threads,
        num_parameters=sum(trainer.fragments.sizes),
        tokens_per_s=max(step.tokens / max(step.seconds, 1e-9) for step in steps),
    )


def _memory() -> dict[str, int]:
    """Most memory and address space that this process has used, bytes; what is known of them."""
    from neuroswarm.hardware.process_limits import read_peak_bytes, read_peak_space_bytes

    found = {"peak_bytes": read_peak_bytes(), "peak_space_bytes": read_peak_space_bytes()}
    return {name: value for name, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
