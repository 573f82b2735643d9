"""Makes this process look like one on Windows, then runs a node alone in it.

Not a test file: `test_other_systems.py` runs it in a process of its own. The libraries are those of
this system and are imported before, with the package, which is then imported anew. From then on
modules, functions and constants that Windows' Python lacks are gone; locks are the real ones under
Windows' name.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.abc
import os
import shutil
import signal
import socket
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import neuroswarm.cli.main
import neuroswarm.cli.signals
import neuroswarm.node.factory
import neuroswarm.testing.tiny_workload

LOADED = (
    neuroswarm.cli.main, neuroswarm.cli.signals, neuroswarm.node.factory,
    neuroswarm.testing.tiny_workload,
)  # fmt: skip

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "posix", "syslog", "tty", "pty", "curses")
OF_OS = (
    "sched_getaffinity", "sched_setaffinity", "getpriority", "setpriority", "nice", "getloadavg",
    "statvfs", "getuid", "geteuid", "getgid", "getegid", "fchmod", "fchown", "chown", "fork",
    "pread", "preadv", "pwrite", "pwritev", "sysconf", "uname", "O_CLOEXEC", "O_NOFOLLOW",
    "O_DIRECTORY", "O_NONBLOCK", "PRIO_PROCESS", "mkfifo", "setsid", "getpgid", "killpg",
)  # fmt: skip
OF_SIGNAL = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE")
OF_SOCKET = ("AF_UNIX", "AF_NETLINK", "AF_PACKET", "SO_REUSEPORT")


class Missing(importlib.abc.MetaPathFinder):
    """Finds none of the modules that Windows does not have."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def become_windows() -> None:
    """From here on nothing is there that Windows lacks."""
    import fcntl

    def locking(descriptor: int, _mode: int, _size: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    stand_in = types.ModuleType("msvcrt")
    stand_in.locking, stand_in.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = stand_in
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    opened = os.open

    def open_file(path: str | Path, flags: int, *args: int, **more: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *args, **more)

    os.open = open_file  # type: ignore[assignment]
    statvfs = os.statvfs

    def disk_usage(path: str | Path) -> object:  # Windows' Python asks the system another way
        found = statvfs(path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        return shutil._ntuple_diskusage(total, total - free, free)  # type: ignore[attr-defined]

    shutil.disk_usage = disk_usage  # type: ignore[assignment]
    # The loop's own pipe: Windows makes it of a connection, this Python of a local socket.
    socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)  # type: ignore[assignment]
    for owner, names in ((os, OF_OS), (signal, OF_SIGNAL), (socket, OF_SOCKET)):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)

    def add_signal_handler(*_: object) -> None:
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler  # type: ignore[assignment]
    sys.platform = "win32"


def main(folder: Path) -> None:
    assert all(LOADED)  # and with them every library that they use, as this system's
    for name in [n for n in sys.modules if n.startswith("neuroswarm")]:
        if not name.startswith("neuroswarm.v1"):
            del sys.modules[name]  # made anew, as Windows would
    become_windows()
    importlib.import_module("neuroswarm.cli.main")
    from neuroswarm.cli.signals import run_service
    from neuroswarm.config import SwarmNodeConfig
    from neuroswarm.node.factory import create_swarm_node
    from neuroswarm.node.node import SwarmNode
    from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

    config = SwarmNodeConfig(
        network={"host": "127.0.0.1", "lan": False, "grpc_port": 0},
        heartbeat={"port": 0}, dht={"enabled": False}, rounds={"genesis_wait_s": 0.0},
        training={"batch_size": 4, "context": 16}, diloco={"inner_steps": 4, "inner_steps_min": 1},
        state_dir=folder,
    )  # fmt: skip

    async def work(node: SwarmNode) -> None:
        sys.stdout.write(f"{await node.run(rounds=3)}\n")

    def make() -> SwarmNode:
        return create_swarm_node(
            None, 0, None, config, enable_training=True, model=TinyModel(), data=tiny_text()
        )

    run_service(make, work)
    sys.stdout.write(f"kept: {sorted(path.name for path in folder.iterdir())}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
