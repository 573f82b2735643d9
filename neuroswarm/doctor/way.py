"""What was found on the way to one node or tracker, and how it is found out over TCP.

Small and large probes over HTTP, and whether the gRPC port takes connections. Refuses to judge.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

import aiohttp

from neuroswarm.clock import Clock
from neuroswarm.connecting import explain_failure
from neuroswarm.doctor.datagram_asker import Echoed
from neuroswarm.errors import AdmissionError, BadSignature, PeerError, PeerUnreachable
from neuroswarm.identity.sealing import Sealer
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes

TIMEOUT_S = 4.0
"""Longest wait for one answer over HTTP or for a connection."""

_MAX_BODY_BYTES = 2 * limits.MAX_PROBE_BYTES


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask."""

    label: str
    """As the user wrote it, or how it was found."""
    endpoint: Endpoint
    """Host and HTTP port."""
    address: str
    """One address of the host."""
    scheme: str = "http"
    greeted_port: int = 0
    """UDP port to try even if nothing answers over HTTP; 0 for none."""
    is_given: bool = True
    """Whether the user named it; others may be gone without harm."""

    @property
    def url(self) -> str:
        """Where probes are posted."""
        return f"{self.scheme}://{self.endpoint}{probes.PROBE_PATH}"


@dataclass(frozen=True, slots=True)
class WayFacts:
    """What was found on the way to a target; texts are empty where nothing is wrong."""

    target: Target
    http_failure: str = ""
    is_refused: bool = False
    """Whether what answers has another swarm token."""
    rtt_s: float | None = None
    """Of a small probe over HTTP, with the connection made for it."""
    reply: probes.ProbeReply | None = None
    offset_s: float | None = None
    """How far its clock is before this machine's, seconds."""
    large_failures: tuple[str, ...] = ()
    """Which large packets did not pass though small ones do."""
    grpc_failure: str | None = None
    """None if it was not tried."""
    echoed: Echoed | None = None
    """Answer to a small datagram; None if none came, or none was sent."""
    greeted_port: int = 0
    """UDP port that datagrams were sent to; 0 if none were."""
    own_address: str | None = None
    """This machine's address on the route to it."""

    @property
    def is_answered(self) -> bool:
        """Whether the target answered in some way, as a member."""
        return self.reply is not None or self.echoed is not None


async def ask_over_tcp(
    target: Target, session: aiohttp.ClientSession, sealer: Sealer, clock: Clock
) -> WayFacts:
    """Post a small and two large probes, and try the gRPC port that it names.

    Args:
        target: Whom to ask.
        session: With `TIMEOUT_S` for a whole request.
        sealer: Holds the swarm's datagram key.
        clock: Tells the time.

    Cancellation: nothing is left behind.
    """
    facts = WayFacts(target)
    began, wall = time.monotonic(), clock.wall()
    try:
        reply = await _post(session, target.url, sealer)
    except AdmissionError as error:
        return replace(facts, http_failure=str(error), is_refused=True)
    except PeerError as error:
        return replace(facts, http_failure=str(error))
    rtt_s = time.monotonic() - began
    return replace(
        facts,
        reply=reply,
        rtt_s=rtt_s,
        offset_s=reply.time - (wall + rtt_s / 2),
        large_failures=await _ask_large(session, target.url, sealer),
        grpc_failure=await _connect(target.address, reply.grpc_port) if reply.grpc_port else None,
    )


async def _ask_large(session: aiohttp.ClientSession, url: str, sealer: Sealer) -> tuple[str, ...]:
    failures = []
    size = limits.MAX_PROBE_BYTES
    for way, sent, wanted in (("to", size, 0), ("from", 0, size)):
        try:
            await _post(session, url, sealer, sent, wanted)
        except (AdmissionError, PeerError) as error:
            failures.append(f"{size // 1024} KiB {way} it over TCP: {error}")
    return tuple(failures)


async def _post(
    session: aiohttp.ClientSession, url: str, sealer: Sealer, sent: int = 0, wanted: int = 0
) -> probes.ProbeReply:
    """One probe.

    Raises:
        AdmissionError: there is another swarm token.
        PeerError: no connection, no answer in time, no node there, or a malformed answer.
    """
    request = probes.seal_probe(sealer, num_bytes=sent, answer_bytes=wanted)
    try:
        async with session.post(url, data=request, allow_redirects=False) as answer:
            if answer.status == 403:
                raise AdmissionError("it refuses this swarm token")
            if answer.status != 200:
                raise PeerUnreachable(f"no node of this version there (HTTP {answer.status})")
            body = await _read_bounded(answer.content)
    except TimeoutError as error:
        raise PeerUnreachable(f"no answer in {TIMEOUT_S:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise PeerUnreachable(explain_failure(error)) from error
    try:
        return probes.open_probe_reply(sealer, request, body)
    except BadSignature as error:
        raise AdmissionError("its answer is not sealed with this swarm token") from error


async def _read_bounded(content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for chunk in content.iter_any():
        data += chunk
        if len(data) > _MAX_BODY_BYTES:
            raise PeerUnreachable(f"answer too large: over {_MAX_BODY_BYTES} bytes")
    return bytes(data)


async def _connect(address: str, port: int) -> str:
    """Empty if something takes connections there, else why not."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        return f"no answer in {TIMEOUT_S:g} s"
    except OSError as error:
        return explain_failure(error)
    writer.transport.abort()
    return ""
