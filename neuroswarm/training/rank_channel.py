"""Messages between a node and the processes of its further devices, over a local socket pair.

A message is a JSON object, and tensors as safetensors. Knows nothing of what it carries.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
MAX_TENSOR_BYTES = 2 * 1024**3
"""Of one message: windows of text, or what stands for them."""

_HEAD = struct.Struct("<QQ")
_FOR_EVER_S = 10 * 365 * 86400.0


class RankChannel:
    """One end of a socket pair; nobody but the two processes can write to it.

    Threads: one that sends, and one that receives.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)

    def send(
        self,
        document: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None = None,
        *,
        within_s: float,
    ) -> None:
        """Send one message.

        Args:
            document: JSON values.
            tensors: By name; contiguous, on the CPU.
            within_s: Longest time for all of it, seconds.

        Raises:
            TimeoutError: the other side did not take it in time.
            OSError: the other side has gone.
        """
        text, data = json.dumps(document).encode(), save(dict(tensors)) if tensors else b""
        left = memoryview(_HEAD.pack(len(text), len(data)) + text + data)
        deadline = time.monotonic() + within_s
        while left:
            self._wait(deadline)
            left = left[self._socket.send(left) :]

    def receive(
        self, *, within_s: float = _FOR_EVER_S, takes_tensors: bool = False
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Take the next message.

        Args:
            within_s: Longest wait for all of it, seconds.
            takes_tensors: Whether there may be tensors in it.

        Raises:
            TimeoutError: it is not there in time.
            EOFError: the other side has gone.
            OSError: likewise.
            ValueError: it is too large, or malformed.
        """
        deadline = time.monotonic() + within_s
        num_text, num_data = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if num_text > MAX_DOCUMENT_BYTES or num_data > (MAX_TENSOR_BYTES if takes_tensors else 0):
            raise ValueError(f"message of {num_text} and {num_data} bytes")
        document = json.loads(self._read(num_text, deadline))
        if not isinstance(document, dict):
            raise ValueError("message without a JSON object")
        return document, load(bytes(self._read(num_data, deadline))) if num_data else {}

    def close(self) -> None:
        """Close this end: the other side learns of it at once."""
        self._socket.close()

    def _read(self, num_bytes: int, deadline: float) -> bytearray:
        data = bytearray(num_bytes)
        left = memoryview(data)
        while left:
            self._wait(deadline)
            got = self._socket.recv_into(left)
            if not got:
                raise EOFError("the other process has gone")
            left = left[got:]
        return data

    def _wait(self, deadline: float) -> None:
        """Let the next call on the socket wait until then at most."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left_s)
