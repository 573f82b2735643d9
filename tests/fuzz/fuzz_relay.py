"""Members that attach to a node as their relay and take nothing, and send what they must not."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc.aio
from fuzz_calls import Member
from fuzz_mutation import Mutator
from fuzz_scene import make_key

from neuroswarm.identity.token import SwarmToken
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import Frame, encode_frames

MEMBERS_AT_ONCE = 8
STREAMS_OF_FIRST = 40
"""Attachments that one of them opens at once; 16 streams of a caller are answered."""

PUSHES = 4
FRAMES = 8
"""Frames of 32 KiB in a push, each on a pipe of its own."""


class RelayCrowd:
    """Ever new members, a few at a time, all of them attached."""

    def __init__(self, token: SwarmToken, port: int, target: NodeId, mutator: Mutator) -> None:
        """Take where the node answers calls, on this machine, and who it is."""
        self._token, self._port, self._target = token, port, target
        self._rng, self._mutator = mutator.rng, mutator
        self._numbers = itertools.count(mutator.rng.randrange(10**9))
        self.outcomes: Counter[str] = Counter()

    async def run(self, num_members: int, look: Callable[[], Awaitable[None]]) -> None:
        """Be so many members; `look` is called while as many as there can be are attached."""
        for start in range(0, num_members, MEMBERS_AT_ONCE):
            count = max(2, min(MEMBERS_AT_ONCE, num_members - start))
            members = [
                Member(self._token, make_key("relayed", next(self._numbers)), self._port)
                for _ in range(count)
            ]
            try:
                await self._attach(members)
                await asyncio.gather(*(self._push(member, members) for member in members))
                await look()
            finally:
                await asyncio.gather(*(member.close() for member in members))

    async def _attach(self, members: list[Member]) -> None:
        """Attach all, and read no more than that they are."""
        calls = [member.attach(_session(member)) for member in members]
        firsts = await asyncio.gather(*(_begin(call) for call in calls))
        self.outcomes.update(f"attach: {first}" for first in firsts)
        more = [members[0].attach(_session(members[0])) for _ in range(STREAMS_OF_FIRST)]
        self.outcomes.update(
            f"attach again: {end}" for end in await asyncio.gather(*(_begin(c) for c in more))
        )

    async def _push(self, member: Member, members: list[Member]) -> None:
        """Pipes to others that take nothing, to itself, to the relay, to nobody; then noise."""
        others: list[NodeId] = [other.key.node_id for other in members]
        number = 1
        for _ in range(PUSHES):
            frames = []
            for _ in range(FRAMES):
                to = self._rng.choice((*others, self._target, NodeId(self._rng.randbytes(20))))
                data = bytes(limits.MAX_FRAME_DATA_BYTES)
                frames.append(Frame(number, to, self._rng.choice((0, 1)), data))
                number += 2
            await self._send(member, encode_frames(_session(member), frames), "pipes")
        unread = [Frame(number + 2 * n, others[-1], 0, b"x") for n in range(limits.MAX_FRAMES)]
        await self._send(member, encode_frames(_session(member), unread), "many pipes")
        flood = [Frame(number, None, 0, bytes(limits.MAX_FRAME_DATA_BYTES)) for _ in range(8)]
        await self._send(member, encode_frames(_session(member), flood), "beyond the window")
        broken = self._mutator.encoding(encode_frames(_session(member), unread[:3]))
        await self._send(member, broken, "encoding broken")
        again = encode_frames(_session(member), unread[:1])
        await self._send(member, again, "number used before")

    async def _send(self, member: Member, data: bytes, what: str) -> None:
        try:
            await member.call("Relay/Push", data)
            end = "OK"
        except grpc.aio.AioRpcError as error:
            end = error.code().name
        self.outcomes[f"{what}: {end}"] += 1


def _session(member: Member) -> bytes:
    return member.key.node_id[:8]


async def _begin(call: grpc.aio.UnaryStreamCall[bytes, bytes]) -> str:
    """Wait for the first message of a stream, and read no other."""
    try:
        first = await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "ended" if first is grpc.aio.EOF else "OK"
