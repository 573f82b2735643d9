"""Asking a node whether it lives, or is ready, as what watches over containers does.

Imports next to nothing: orchestrators ask twice a minute, on small machines too.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence

from neuroswarm.cli.exit_codes import ExitCode

DEFAULT_PORT = 7101
TIMEOUT_S = 8.0
MAX_ANSWER_BYTES = 4096
MAX_PORT, MAX_PORT_DIGITS = 65535, 5

_SHORT_FORMS = (["health"], ["health", "--live"])
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1", "": "127.0.0.1"}


def answer_early(arguments: Sequence[str]) -> None:
    """Carry out `health` and `health --live`, the forms that containers use, and end the process.

    Without the command line's library, which takes longer than the whole question.

    Args:
        arguments: Of the command line, without the program; returns if they are anything else.
    """
    if list(arguments) in _SHORT_FORMS:
        sys.exit(check(None, is_live="--live" in arguments, environment=os.environ))


def check(
    node: str | None,
    *,
    is_live: bool,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> int:
    """Ask a node or tracker, and say on stderr what is wrong.

    Args:
        node: Its HTTP address as `neuroswarm status` takes it; None: this machine's, on the port
            of NEUROSWARM_PORT (7101) and the address of NEUROSWARM_HOST, as the node itself reads
            them.
        is_live: Ask whether the process answers at all, instead of whether it holds a state.
        environment: Process environment.
        timeout_s: Seconds until the answer must be here.

    Returns:
        0 if so, else 69; 78 if the environment names no port that can be asked.

    Raises:
        ConfigError: `node` is no address.
    """
    host, port = _own(environment) if node is None else _read(node)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if port is None:
        return _fail(
            "NEUROSWARM_PORT must be 1 to 65535 for a node to be asked there: give its address",
            code=ExitCode.CONFIG,
        )
    page = "/livez" if is_live else "/readyz"
    try:
        said = _ask(host, port, page, timeout_s)
    except (OSError, UnicodeError) as error:  # the latter: a name that no resolver takes
        from neuroswarm.connecting import explain_failure

        return _fail(f"no node answers at {where}{page}: {explain_failure(error)}")
    version, _, rest = said.partition(b" ")
    if not version.startswith(b"HTTP/"):
        return _fail(f"what answers at {where}{page} is no node")
    if not rest.startswith(b"200"):
        word = said.rpartition(b"\r\n\r\n")[2].decode("ascii", errors="replace").strip()
        return _fail(f"{where}{page} answers {rest[:3].decode('ascii', 'replace')}: {word}")
    return ExitCode.OK


def _own(environment: Mapping[str, str]) -> tuple[str, int | None]:
    host = environment.get("NEUROSWARM_HOST", "") or environment.get("NEUROSWARM_NETWORK_HOST", "")
    text = environment.get("NEUROSWARM_PORT", "") or environment.get("NEUROSWARM_NETWORK_PORT", "")
    host = _EVERYWHERE.get(host, host.strip("[]"))
    if not text:
        return host, DEFAULT_PORT
    is_port = text.isdecimal() and len(text) <= MAX_PORT_DIGITS and 0 < int(text) <= MAX_PORT
    return host, int(text) if is_port else None


def _read(node: str) -> tuple[str, int]:
    from urllib.parse import urlsplit

    from neuroswarm.cli.node_address import read_node_url

    parts = urlsplit(read_node_url(node))
    return parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORT


def _ask(host: str, port: int, page: str, timeout_s: float) -> bytes:
    """The first bytes of the answer; OSError if none comes in time."""
    request = f"GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = b""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(request.encode("ascii"))
        while len(said) < MAX_ANSWER_BYTES and (more := connection.recv(MAX_ANSWER_BYTES)):
            said += more
    return said


def _fail(line: str, code: int = ExitCode.UNAVAILABLE) -> int:
    sys.stderr.write(f"neuroswarm: {line}\n")
    return code
