"""Locks that end with their holder, on this system and with Windows' way of saying no."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.hardware.file_access import read_at, read_into, write_at
from neuroswarm.hardware.file_lock import try_lock

HOLD = """
import os, sys
from neuroswarm.hardware.file_lock import try_lock
print(try_lock(os.open(sys.argv[1], os.O_RDWR)), flush=True)
input()
"""


def test_a_lock_keeps_others_out_and_ends_with_its_process(tmp_path: Path):
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert not try_lock(descriptor)
        holder.kill()
        holder.communicate()
        assert try_lock(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EDEADLK])
def test_windows_says_in_other_words_that_a_file_is_locked(number: int):
    def refuse(_descriptor: int) -> None:
        raise OSError(number, "taken")

    assert not try_lock(0, refuse)
    assert try_lock(0, lambda _descriptor: None)


def test_a_disk_without_locks_is_an_error():
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    with pytest.raises(OSError, match="no locks"):
        try_lock(0, refuse)


@pytest.mark.parametrize("is_unix", [True, False], ids=["unix", "elsewhere"])
def test_reading_and_writing_in_the_middle_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_unix: bool
):
    if not is_unix:
        for name in ("pread", "preadv", "pwrite"):
            monkeypatch.delattr(os, name)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert write_at(descriptor, memoryview(b"ab"), 4) == 2
        assert read_at(descriptor, 4, 3) == b"3ab6"
        target = bytearray(4)
        assert read_into(descriptor, memoryview(target), 8) == 2
        assert bytes(target[:2]) == b"89"
        assert read_at(descriptor, 4, 10) == b""
    finally:
        os.close(descriptor)
