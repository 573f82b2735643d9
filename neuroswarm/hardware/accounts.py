"""Users and groups of this machine, as far as a service needs them; none where there are none.

Refuses to know what a service is.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

READ, WRITE, PASS = 4, 2, 1


@dataclass(frozen=True, slots=True)
class Account:
    """A user as the kernel judges one without capabilities, as in a unit even root is.

    Access lists (ACLs) and the like are not looked at.
    """

    user_id: int
    group_ids: frozenset[int]

    def may(self, status: os.stat_result, wanted: int) -> bool:
        """Whether the mode of a file or folder gives all of `wanted` (READ, WRITE, PASS)."""
        if status.st_uid == self.user_id:
            given = status.st_mode >> 6
        elif status.st_gid in self.group_ids:
            given = status.st_mode >> 3
        else:
            given = status.st_mode
        return given & wanted == wanted

    def find_closed(self, path: Path, wanted: int = READ) -> Path | None:
        """The first part of a path that this user cannot pass, or the path if it cannot be used.

        Args:
            path: File or folder that is there; links in it are followed.
            wanted: What is to be done with it; a folder has to be passed too.

        Raises:
            OSError: the caller cannot look at it.
        """
        for part in (*reversed(path.parents), *reversed(path.resolve().parents)):
            if not self.may(part.stat(), PASS):
                return part
        needed = wanted | PASS if path.is_dir() else wanted
        return None if self.may(path.stat(), needed) else path


NOBODY = Account(-1, frozenset())
"""A user that owns nothing and is in no group of files."""


def find_account(name: str) -> Account | None:
    """The user of that name, or None if this machine knows none."""
    if sys.platform == "win32":
        return None
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid)))


def is_root() -> bool:
    """Whether this process may do everything; False where there is no such user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def find_device_groups(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The groups that may use this machine's accelerators, but for that of root (`name_group`).

    Args:
        devices: Folder of the devices.
    """
    if sys.platform == "win32":
        return ()
    found = [*devices.glob("kfd"), *devices.glob("dri/render*")]
    numbers = {device.stat().st_gid for device in found} - {0}
    return tuple(sorted(map(name_group, numbers)))


def name_group(number: int) -> str:
    """The name of a group, or its number where it has none, as in containers."""
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
