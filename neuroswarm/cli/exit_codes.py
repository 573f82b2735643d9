"""Exit codes (those of sysexits.h) and which error ends with which.

Refuses to know which command failed.
"""

from __future__ import annotations

import errno
from enum import IntEnum

from neuroswarm.errors import (
    AdmissionError,
    CheckpointError,
    ConfigError,
    DataError,
    DemoFailed,
    DeployError,
    DockerUnavailable,
    NeuroswarmError,
    NewerRules,
    PeerUnreachable,
    SystemdError,
    SystemdUnavailable,
)


class ExitCode(IntEnum):
    """What the process ends with; documented in the README."""

    OK = 0
    """Done, or asked to stop by SIGTERM or SIGINT."""
    INTERNAL = 1
    """A bug: the traceback is printed."""
    USAGE = 2
    """The command line is wrong."""
    UNAVAILABLE = 69
    """A one-shot command could not reach the node, a docker engine that can do what is asked, or
    systemd; or the service does not run."""
    UNFULFILLED = 70
    """A demo did not hold what it promises, or could not be carried out; the doctor found that a
    node will not run here, or not find the others; docker refused what `deploy` asked of it, or
    systemd what `service` did."""
    IO = 74
    """A disk is full or unreadable."""
    STOP_HANGS = 75
    """A graceful stop did not end within its deadline and was cut short."""
    AUTH = 77
    """The swarm token is missing, malformed or not the swarm's."""
    CONFIG = 78
    """A setting, a port or the data cannot be used."""


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ConfigError, ExitCode.CONFIG),
    (DataError, ExitCode.CONFIG),
    (NewerRules, ExitCode.CONFIG),
    (AdmissionError, ExitCode.AUTH),
    (PeerUnreachable, ExitCode.UNAVAILABLE),
    (CheckpointError, ExitCode.IO),
    (DemoFailed, ExitCode.UNFULFILLED),
    (DockerUnavailable, ExitCode.UNAVAILABLE),
    (DeployError, ExitCode.UNFULFILLED),
    (SystemdUnavailable, ExitCode.UNAVAILABLE),
    (SystemdError, ExitCode.UNFULFILLED),
    (NeuroswarmError, ExitCode.INTERNAL),
)


def explain(error: BaseException) -> tuple[ExitCode, str] | None:
    """Exit code and one line for an error that a user can do something about.

    None for bugs, which deserve their traceback. Looks into exception groups, as a part
    that fails raises its loop's error in one.
    """
    for leaf in _leaves(error):
        for kind, code in _CODES:
            if isinstance(leaf, kind):
                return code, _one_line(str(leaf))
    for leaf in _leaves(error):
        if isinstance(leaf, OSError):
            return _explain_os_error(leaf)
        if isinstance(leaf, RuntimeError) and "baseline optimizations" in str(leaf):
            what = _one_line(str(leaf)).rstrip(".")
            return ExitCode.CONFIG, f"{what}: pip install 'numpy<2.4'"
    return None


def _explain_os_error(error: OSError) -> tuple[ExitCode, str]:
    where = f": {error.filename}" if error.filename else ""
    reason = error.strerror or str(error)
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return ExitCode.CONFIG, _one_line(f"cannot listen: {reason}{where}")
    return ExitCode.IO, _one_line(f"{reason}{where}")


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def _one_line(text: str) -> str:
    return " ".join(text.split())
