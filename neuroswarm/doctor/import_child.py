"""Imports numpy and torch and takes one small step, in a process of its own; says how far it came.

`python -m neuroswarm.doctor.import_child` writes a JSON object a line, as `torch_child` does, which
begins with the same. Refuses to judge.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata

IMPORT_NUMPY, IMPORT_TORCH, STEP = "import numpy", "import torch", "take a step"
"""Stages: what it was about to do."""

MAX_ERROR_CHARS = 300


def main() -> None:
    """Import both, take a step, and say so."""
    import_both()
    say(stage=STEP)
    _take_step()
    say(stage="")


def import_both() -> None:
    """Import numpy and torch; says before each what comes, as one may kill the process.

    Ends the process if numpy refuses this processor.
    """
    say(stage=IMPORT_NUMPY, numpy=_find_version("numpy"))
    try:
        import numpy  # noqa: F401 - what counts is that it can be imported
    except (ImportError, RuntimeError) as error:  # it refuses some processors in several lines
        say(error=" ".join(str(error).split())[:MAX_ERROR_CHARS])
        sys.exit(1)
    say(stage=IMPORT_TORCH, version=_find_version("torch"))
    import torch

    say(version=torch.__version__, capability=torch.backends.cpu.get_cpu_capability())


def say(**facts: object) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _find_version(package: str) -> str | None:
    """As its installation says, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _take_step() -> None:
    """Matrices, a norm, attention, a loss and their gradients: builds differ in each of these."""
    import torch
    from torch.nn import functional

    x_BTD = torch.linspace(-1, 1, 2 * 16 * 32).reshape(2, 16, 32).requires_grad_()
    normal_BTD = functional.layer_norm(x_BTD @ torch.ones(32, 32), (32,))
    mixed_BTD = functional.scaled_dot_product_attention(
        normal_BTD, normal_BTD, x_BTD, is_causal=True
    )
    targets = torch.arange(32) % 32
    loss = functional.cross_entropy(functional.gelu(mixed_BTD).reshape(32, 32), targets)
    loss.backward()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
