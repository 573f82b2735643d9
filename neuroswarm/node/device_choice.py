"""Which devices of its machine a node trains on.

Knows nothing of what it trains, and of how they work together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neuroswarm.config.device_list import AUTO, split_devices
from neuroswarm.config.sections import ResourceConfig
from neuroswarm.errors import ConfigError

SIMILAR = 0.25
"""Share by which the memory of a device may differ from the first one's to be chosen with it."""


def choose_devices(resources: ResourceConfig) -> tuple[str, ...]:
    """The devices of the settings, the main one first.

    Of several processors each has a name of its own: `cpu`, `cpu:1` ...

    Raises:
        ConfigError: one is not there, or the settings contradict each other.
    """
    if resources.devices is None:
        return (str(choose_device(resources.device)),)
    if resources.devices == AUTO:
        main = choose_device(resources.device)
        is_free = resources.device == AUTO and main.type == "cuda"
        return _similar_cuda() if is_free else (str(main),)
    names = split_devices(resources.devices)
    if resources.device not in (AUTO, names[0]):
        raise ConfigError(
            f"resources.device: {resources.device} is not the first of resources.devices "
            f"{resources.devices} (leave one of them out)"
        )
    for name in names:
        choose_device(name)
    if set(names) == {"cpu"}:
        return ("cpu", *(f"cpu:{number}" for number in range(1, len(names))))
    return names


def choose_device(name: str) -> torch.device:
    """The device to train on; ConfigError if it is not there."""
    if name == AUTO:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device not to be used: {name!r} (auto, cpu, cuda, cuda:0, mps)"
        ) from error
    return device


def count_beside(device: str) -> int:
    """How many other CUDA devices the machine of a CUDA device has; none of any other kind."""
    return torch.cuda.device_count() - 1 if device.startswith("cuda") else 0


def choose_similar(sizes: Sequence[int]) -> list[int]:
    """Numbers of the devices with about as much memory as the first, which is one of them.

    Args:
        sizes: Bytes of each, at least one.
    """
    return [i for i, size in enumerate(sizes) if abs(size - sizes[0]) <= SIMILAR * sizes[0]]


def _similar_cuda() -> tuple[str, ...]:
    """All CUDA devices that have about as much memory as the first."""
    sizes = [
        torch.cuda.get_device_properties(index).total_memory
        for index in range(torch.cuda.device_count())
    ]
    return tuple(f"cuda:{index}" for index in choose_similar(sizes))
