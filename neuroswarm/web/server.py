"""The HTTP server of a node.

Refuses to know what status, peers and metrics say, and what a tracker request holds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

from aiohttp import web
from prometheus_client import CollectorRegistry

from neuroswarm.errors import (
    BadSignature,
    MessageTooLarge,
    PeerError,
    ProtocolViolation,
)
from neuroswarm.listening import unmapped
from neuroswarm.service import Service
from neuroswarm.values import Endpoint
from neuroswarm.web import connections, metrics
from neuroswarm.web.first_answers import BACKLOG, bind_http
from neuroswarm.web.json_values import to_json
from neuroswarm.wire import limits

logger = logging.getLogger(__name__)

BindHttp = Callable[[Endpoint], socket.socket]
"""Brings a bound socket; ConfigError if there is none."""

SealedHandler = Callable[[bytes, str], bytes]
"""Answers a sealed request: (body, address of the asker) -> sealed reply."""

MAX_IN_FLIGHT = 64
"""Sealed requests whose bodies may be on their way at once; more get 503."""

BODY_TIMEOUT_S = 10.0
_SHUTDOWN_S = 1.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CONTENT_POLICY = (
    "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the answers come from; each is called for every request, on the event loop."""

    status: Callable[[], object]
    """What `/status` says, as JSON-able values."""
    peers: Callable[[], object]
    """What `/peers` says."""
    registry: CollectorRegistry
    """What `/metrics` says."""
    is_ready: Callable[[], bool] = lambda: True
    """Whether `/readyz` says yes."""


class WebServer(Service):
    """Serves health and sealed requests to everyone, the rest to this machine.

    `/status /metrics /peers /` answer callers on loopback that address the server by `localhost`
    or by an address (so that no foreign web page can read them through its own host name), or
    everyone if `is_open`.
    """

    name = "web"

    def __init__(
        self,
        listen: Endpoint,
        pages: Pages,
        *,
        sealed: Mapping[str, SealedHandler] = MappingProxyType({}),
        is_open: bool = False,
        bind: BindHttp = bind_http,
    ) -> None:
        """Wire it up.

        Args:
            listen: Address and port; port 0 takes any free one.
            pages: Where the answers come from.
            sealed: By path, who answers what is posted there; nothing by default.
            is_open: Answer status, metrics, peers and dashboard to other machines too.
            bind: Brings the socket to listen on; called in a thread.
        """
        super().__init__()
        self._listen = listen
        self._pages = pages
        self._sealed = sealed
        self._is_open = is_open
        self._bind = bind
        self.bytes_sent = 0
        self.bytes_received = 0
        """Bytes of bodies, but for pages that this machine asks for."""
        self.num_requests = 0
        self._num_in_flight = 0
        self._endpoint: Endpoint | None = None
        self._dashboard_html = ""

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens, once started."""
        assert self._endpoint is not None, "start() binds the port"
        return self._endpoint

    async def _open(self, stack: AsyncExitStack) -> None:
        self._dashboard_html = await asyncio.to_thread(_read_dashboard)
        app = web.Application(
            client_max_size=limits.MAX_TRACKER_BODY_BYTES, middlewares=[self._add_headers]
        )
        app.add_routes([web.get("/livez", self._live), web.get("/readyz", self._ready)])
        app.add_routes([web.post(path, self._answer(h)) for path, h in self._sealed.items()])
        private = {
            "/": self._dashboard,
            "/status": self._status,
            "/peers": self._peers,
            "/metrics": self._metrics,
        }
        app.add_routes([web.get(path, self._only_here(page)) for path, page in private.items()])
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
            keepalive_timeout=connections.IDLE_TIMEOUT_S,
            auto_decompress=False,  # a small body may be a large one packed
            logger=connections.make_logger(f"{__name__}.http"),
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await self._listen_with(runner, stack)

    async def _listen_with(self, runner: web.AppRunner, stack: AsyncExitStack) -> None:
        assert runner.server is not None, "setup() makes it"
        bound = await asyncio.to_thread(self._bind, self._listen)
        stack.callback(bound.close)
        server = await asyncio.get_running_loop().create_server(
            connections.BoundedConnections(runner.server), sock=bound, backlog=BACKLOG
        )
        stack.callback(server.close)
        self._endpoint = Endpoint(self._listen.host, int(bound.getsockname()[1]))

    @web.middleware
    async def _add_headers(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        response = await handler(request)
        self._count(request, response)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _count(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.method == "GET" and _is_loopback(_caller(request)):
            return  # a probe or a person on this machine
        self.num_requests += 1
        self.bytes_received += request.content.total_bytes
        self.bytes_sent += response.content_length or 0

    def _only_here(self, page: _Handler) -> _Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if self._is_open or (_is_loopback(_caller(request)) and _is_plain_host(request.host)):
                return await page(request)
            return web.Response(
                status=403, text="answered on this machine only (open it with --http-open)\n"
            )

        return answer

    async def _live(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        if self._pages.is_ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="not ready\n")

    async def _status(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(text=to_json(self._pages.status()))

    async def _peers(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(text=to_json(self._pages.peers()))

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        text = metrics.render(self._pages.registry)
        return web.Response(body=text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _dashboard(self, _: web.Request) -> web.StreamResponse:
        return web.Response(
            text=self._dashboard_html,
            content_type="text/html",
            headers={"Content-Security-Policy": _CONTENT_POLICY},
        )

    def _answer(self, handler: SealedHandler) -> _Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answer_sealed(handler, request)

        return answer

    async def _answer_sealed(
        self, handler: SealedHandler, request: web.Request
    ) -> web.StreamResponse:
        if self._num_in_flight >= MAX_IN_FLIGHT:
            return web.Response(status=503, text="busy\n")
        self._num_in_flight += 1
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408, text="the body did not arrive in time\n")
        except (web.RequestPayloadError, OSError):
            return web.Response(status=400, text="the body did not arrive whole\n")
        finally:
            self._num_in_flight -= 1
        try:
            reply = handler(body, _caller(request))
        except PeerError as error:
            return web.Response(status=_http_status(error), text=f"{error}\n")
        return web.Response(body=reply, content_type="application/octet-stream")


def _http_status(error: PeerError) -> int:
    if isinstance(error, BadSignature):
        return 403
    if isinstance(error, MessageTooLarge):
        return 413
    return 400 if isinstance(error, ProtocolViolation) else 429


def _read_dashboard() -> str:
    return resources.files("neuroswarm.web").joinpath("dashboard.html").read_text("utf-8")


def _caller(request: web.Request) -> str:
    return unmapped(request.remote or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_plain_host(host: str) -> bool:
    """Whether a Host header is `localhost` or a literal address, with or without a port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True
