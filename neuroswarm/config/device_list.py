"""Which devices of one machine a text names.

Knows no torch: whether they are there is asked where they are used.
"""

from __future__ import annotations

import re

AUTO = "auto"
MAX_DEVICES = 64
"""Of one node."""

_FORM = re.compile(r"cpu|cuda:(0|[1-9]\d{0,2})|mps")


def check_devices(text: str | None) -> str | None:
    """The text, if it is `auto` or none, or names devices that can work together.

    Raises:
        ValueError: it does not.
    """
    if text is not None and text != AUTO:
        split_devices(text)
    return text


def split_devices(text: str) -> tuple[str, ...]:
    """The devices that a list names, the main one first.

    Raises:
        ValueError: one is unknown, an accelerator is there twice, or they are of several kinds.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _FORM.fullmatch(name):
            raise ValueError(
                f"{name!r} is no device ({AUTO}, or a list like cuda:0,cuda:1 or cpu,cpu)"
            )
    if len(names) > MAX_DEVICES:
        raise ValueError(f"{len(names)} devices (at most {MAX_DEVICES})")
    kinds = {name.partition(":")[0] for name in names}
    if len(kinds) > 1:
        raise ValueError(f"{text!r} mixes kinds of devices (all of them CUDA, or all cpu)")
    if kinds != {"cpu"} and len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a device twice")
    return names
