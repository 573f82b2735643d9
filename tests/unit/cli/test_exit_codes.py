"""Which error ends with which exit code."""

import errno

import pytest

from neuroswarm.cli.exit_codes import ExitCode, explain
from neuroswarm.errors import (
    AdmissionError,
    CheckpointCorrupt,
    ComputeError,
    ConfigError,
    DataError,
    PeerUnreachable,
    SystemdError,
    SystemdUnavailable,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 78),
        (DataError("x"), 78),
        (AdmissionError("x"), 77),
        (PeerUnreachable("x"), 69),
        (CheckpointCorrupt("x"), 74),
        (SystemdUnavailable("x"), 69),
        (SystemdError("x"), 70),
        (ComputeError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_own_errors_have_their_code_and_line(error: Exception, code: int):
    assert explain(error) == (code, "x")


def test_disk_errors_name_the_file():
    error = OSError(errno.ENOSPC, "No space left on device", "/state/model")
    assert explain(error) == (ExitCode.IO, "No space left on device: /state/model")


def test_numpy_that_refuses_the_processor_is_a_matter_of_configuration():
    error = RuntimeError(
        "NumPy was built with baseline optimizations: \n(X86_V2) but your machine doesn't "
        "support:\n(X86_V2)."
    )
    line = (
        "NumPy was built with baseline optimizations: (X86_V2) but your machine doesn't support: "
        "(X86_V2): pip install 'numpy<2.4'"
    )
    assert explain(error) == (ExitCode.CONFIG, line)


def test_taken_port_is_a_matter_of_configuration():
    error = OSError(errno.EADDRINUSE, "address already in use")
    assert explain(error) == (ExitCode.CONFIG, "cannot listen: address already in use")


def test_errors_inside_groups_are_found():
    group = ExceptionGroup("tasks", [ValueError("bug"), ExceptionGroup("x", [ConfigError("y")])])
    assert explain(group) == (ExitCode.CONFIG, "y")


def test_several_lines_become_one():
    assert explain(ConfigError("a\n  b")) == (ExitCode.CONFIG, "a b")


def test_bugs_are_not_explained_away():
    assert explain(ValueError("bug")) is None
    assert explain(ExceptionGroup("tasks", [KeyError("bug")])) is None
