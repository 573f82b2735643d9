"""Users and groups of this machine, as far as a service needs them; none where there are none.

Refuses to know what a service is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def is_root() -> bool:
    """Whether this process may do everything; False where there is no such user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def has_user(name: str) -> bool:
    """Whether this machine knows a user of that name."""
    if sys.platform == "win32":
        return False
    import pwd

    return any(entry.pw_name == name for entry in pwd.getpwall())


def find_device_groups(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The groups that may use this machine's accelerators, but for that of root.

    Args:
        devices: Folder of the devices.
    """
    if sys.platform == "win32":
        return ()
    import grp

    found = [*devices.glob("kfd"), *devices.glob("dri/render*")]
    names = {grp.getgrgid(device.stat().st_gid).gr_name for device in found}
    return tuple(sorted(names - {"root"}))
