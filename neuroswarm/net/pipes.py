"""Lets gRPC use pipes: a local socket for each peer called through one, and one to be called at.

The sockets lie in a folder that only this user may enter; whoever connects needs the swarm's
certificates still. Refuses to know where pipes lead.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.net.socket_folder import SocketFolder
from neuroswarm.service import Service, State
from neuroswarm.transport import Pipe, Pipes
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

DEAF_S = 30.0
"""Seconds for either end to take what waits for it; the pipe is cut then."""

_READ_BYTES = 32 * 1024
_BACKLOG = 16


Enter = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Door:
    """A local socket behind which one peer is."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self.path = path
        self._listening = listening
        self._server: asyncio.Server | None = None

    @property
    def target(self) -> str:
        """Its name for gRPC."""
        return f"unix:{self.path}"

    async def serve(self, enter: Enter) -> None:
        """Let everybody in who comes."""
        if self._listening.fileno() < 0:
            return
        self._server = await asyncio.start_unix_server(enter, sock=self._listening)
        if self._listening.fileno() < 0:
            self._server.close()

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        if self._server is not None:
            self._server.close()
        self._listening.close()
        self.path.unlink(missing_ok=True)


class PipeSockets(Service):
    """The local sockets of one node's gRPC."""

    name = "pipe sockets"

    def __init__(self) -> None:
        super().__init__()
        self.pipes: Pipes | None = None
        """Opens pipes; without it no peer is called through one."""
        self._folder: Path | None = None
        self._num_doors = 0

    @property
    def own_path(self) -> Path | None:
        """Where the server that answers calls through pipes is to listen; None: nowhere."""
        return None if self._folder is None else self._folder / "own"

    def needs_pipe(self, peer: NodeId) -> bool:
        """Whether a peer is called through a pipe."""
        if self.pipes is None or self._folder is None:
            return False
        return self.pipes.needs_pipe(peer)

    def open_door(self, peer: NodeId) -> Door:
        """Make a local socket behind which that peer is; a pipe is opened for each who enters.

        Raises:
            PeerUnreachable: this machine has no socket left, or no room for its name.
        """
        assert self._folder is not None, "needs_pipe() says so"
        self._num_doors += 1
        path = self._folder / str(self._num_doors)
        try:
            door = Door(path, _listen(path))
        except OSError as error:
            raise PeerUnreachable(f"no socket for a pipe: {error.strerror}", peer=peer) from error
        self._spawn(self._serve(door, peer))
        return door

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        self._spawn(self._let_in(pipe))

    async def _open(self, stack: AsyncExitStack) -> None:
        if not hasattr(socket, "AF_UNIX"):
            logger.info("no local sockets on this system: peers behind relays cannot be called")
            return
        try:
            folder = await asyncio.to_thread(SocketFolder.make)
        except OSError as error:
            logger.warning(
                "no folder for temporary sockets (%s): peers that need a relay cannot be called, "
                "and none can relay for this node (set TMPDIR to a folder that can be written)",
                error.strerror,
            )
            return
        stack.callback(folder.remove)
        self._folder = folder.path

    async def _serve(self, door: Door, peer: NodeId) -> None:
        def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.state is State.RUNNING:
                self._spawn(self._lead(peer, reader, writer))
            else:
                writer.close()

        await door.serve(enter)

    async def _lead(
        self, peer: NodeId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        assert self.pipes is not None, "there are doors only for pipes"
        try:
            pipe = await self.pipes.open(peer)
        except PeerError as error:
            logger.debug("no pipe to %s: %s", peer, error)
            writer.close()
            return
        self._join(pipe, reader, writer)

    async def _let_in(self, pipe: Pipe) -> None:
        try:
            if self.own_path is None:
                raise PeerError("there is no socket for pipes")
            reader, writer = await asyncio.open_unix_connection(self.own_path)
        except (OSError, PeerError) as error:
            logger.debug("pipe not let in: %s", error)
            pipe.close()
            return
        self._join(pipe, reader, writer)

    def _join(self, pipe: Pipe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def end() -> None:
            pipe.close()
            writer.close()

        self._spawn(_carry_in(pipe, writer, end))
        self._spawn(_carry_out(reader, pipe, end))


def _listen(path: Path) -> socket.socket:
    """A local socket that takes connections at once: gRPC does not wait for it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def _carry_in(pipe: Pipe, writer: asyncio.StreamWriter, end: Callable[[], None]) -> None:
    try:
        while data := await pipe.read():
            writer.write(data)
            async with asyncio.timeout(DEAF_S):
                await writer.drain()
    except (OSError, TimeoutError, PeerError) as error:
        logger.debug("pipe cut: %s", error)
        writer.transport.abort()  # nobody takes what is left
    finally:
        end()


async def _carry_out(reader: asyncio.StreamReader, pipe: Pipe, end: Callable[[], None]) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            async with asyncio.timeout(DEAF_S):
                await pipe.write(data)
    except (OSError, TimeoutError, PeerError) as error:
        logger.debug("pipe cut: %s", error)
    finally:
        end()
