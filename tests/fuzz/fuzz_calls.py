"""Calls every method of a node as members with the token do, with requests that are broken."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio
from fuzz_mutation import Mutator
from fuzz_scene import ROUND_KINDS, Liar, Scene, make_key
from google.protobuf.message import Message

from neuroswarm.identity.certificate import MEMBER_NAME, issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.grpc_settings import METHOD_PREFIX, NONCE_KEY
from neuroswarm.v1 import (
    envelope_pb2,
    gossip_pb2,
    reach_pb2,
    relay_pb2,
    rounds_pb2,
    shards_pb2,
    state_pb2,
)
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import Attachment
from neuroswarm.wire.signed import Kind, sign

TIMEOUT_S = 30.0
ATTACHED_S = 0.5
"""Seconds of being attached to a relay, which has no other end."""

CALLS_AT_ONCE = 8
IDENTITIES_AT_ONCE = 4
CALLS_OF_IDENTITY = 60
"""Calls after which a member that is not banned yet gives way to another identity."""

NUM_CALLERS, NUM_SIGNERS, NUM_STATEMENTS = 4_200, 8_300, 66_000
"""A little more than a node remembers: bans, scores and buckets; positions; ids of statements."""

STREAMS = frozenset({"Gossip/Payload", "State/Piece", "Shards/Bytes", "Relay/Attach"})
_SESSION = b"fuzzing!"


class Member:
    """One identity with one connection."""

    def __init__(self, token: SwarmToken, key: NodeKey, port: int) -> None:
        """Connect at need to the node at `port` here."""
        self.key = key
        credentials = issue(token, key)
        self._channel = grpc.aio.secure_channel(
            f"127.0.0.1:{port}",
            grpc.ssl_channel_credentials(
                credentials.ca_pem, credentials.key_pem, credentials.certificate_pem
            ),
            options=[
                ("grpc.ssl_target_name_override", MEMBER_NAME),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_send_message_length", 2 * limits.MAX_MESSAGE_BYTES),
                ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
            ],
        )

    async def call(self, method: str, request: bytes, nonce: bytes = bytes(16)) -> bytes:
        """Call and return all bytes of the answer; `grpc.aio.AioRpcError` if it is refused."""
        path, metadata = METHOD_PREFIX + method, ((NONCE_KEY, nonce),)
        if method in STREAMS:
            stream = self._channel.unary_stream(path, None, None)
            timeout_s = ATTACHED_S if method == "Relay/Attach" else TIMEOUT_S
            call = stream(request, timeout=timeout_s, metadata=metadata)
            return b"".join([message async for message in call])
        unary = self._channel.unary_unary(path, None, None)
        reply: bytes = await unary(request, timeout=TIMEOUT_S, metadata=metadata)
        return reply

    def attach(self, session: bytes) -> Any:
        """Begin to be attached to the node as a relay; the call that its messages come on."""
        stream = self._channel.unary_stream(METHOD_PREFIX + "Relay/Attach", None, None)
        request = Attachment(session, takes_pipes=True).encode()
        return stream(request, timeout=TIMEOUT_S, metadata=((NONCE_KEY, bytes(16)),))

    async def close(self) -> None:
        """Disconnect."""
        await self._channel.close(None)


class Requests:
    """Makes requests of all methods, broken in some way."""

    def __init__(self, liar: Liar) -> None:
        self._liar = liar
        self._mutator: Mutator = liar.mutator
        self._rng = liar.rng

    def make(self, key: NodeKey) -> tuple[str, bytes, bytes]:
        """A method, a request, and a nonce."""
        rng = self._rng
        method = rng.choice(tuple(_MAKERS)) if rng.randrange(8) else "Gossip/Push"
        message = _MAKERS[method](self, key)
        choice = rng.randrange(100)
        if (choice < 40 and method != "Gossip/Push") or choice < 20:
            message = self._mutator.message(message)
        data = message.SerializeToString()
        if choice >= 80:
            data = self._mutator.encoding(data)
        if rng.randrange(2000) == 0:
            data += bytes(limits.MAX_MESSAGE_BYTES)
        nonce = rng.randbytes(16 if rng.randrange(50) else rng.choice((0, 1, 15, 17, 500)))
        if rng.randrange(100) == 0:
            method = rng.choice(("Gossip/Nothing", "State/Push", "Nobody/Push"))
        return method, data, nonce

    def push(self, key: NodeKey) -> Message:
        """Statements of all kinds, payloads with and without their headers, proofs."""
        request, rng = gossip_pb2.PushRequest(), self._rng
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            kind = rng.choice(ROUND_KINDS)
            made = self._liar.signed(kind, key)
            request.messages.add(message=made, hops_left=rng.choice((0, 1, 2, 3, 2**32 - 1)))
        if rng.randrange(4) == 0:
            self._add_payload(request, key)
        if rng.randrange(6) == 0:
            request.proofs.append(self._proof(key))
        if rng.randrange(8) == 0:
            self._add_amendment(request)
        return request

    def _add_payload(self, request: gossip_pb2.PushRequest, key: NodeKey) -> None:
        payload = self._liar.payload()
        made = sign(Kind.CONTRIBUTION, self._liar.header(payload).SerializeToString(), key)
        request.messages.add(message=made.to_proto(), hops_left=1)
        if self._rng.randrange(3) == 0:
            payload = self._mutator.encoding(payload)
        id_ = made.id if self._rng.randrange(4) else self._mutator.octets(made.id)
        request.inline.add(contribution=id_, data=payload[: limits.MAX_INLINE_BYTES + 1])

    def _proof(self, key: NodeKey) -> gossip_pb2.EquivocationProof:
        liar, rng = self._liar, self._rng
        kind = rng.choice((Kind.BALLOT, Kind.CONFIRM, Kind.CONTRIBUTION, Kind.SKIP, Kind.AMENDMENT))
        body, other = liar.body(kind), liar.body(kind)
        first = sign(kind, body.SerializeToString(), key).to_proto()
        second = sign(kind, other.SerializeToString(), key).to_proto()
        if rng.randrange(2):  # against the victim, who said neither
            first.public_key = second.public_key = liar.scene.victim.public_key
        if rng.randrange(4) == 0 and liar.scene.heard:
            first = rng.choice(liar.scene.heard)
        if rng.randrange(4) == 0:
            second = self._mutator.message(second)
        return gossip_pb2.EquivocationProof(first=first, second=second)

    def _add_amendment(self, request: gossip_pb2.PushRequest) -> None:
        """Rules that cannot be read, under the owner's own signature."""
        body = self._liar.body(Kind.AMENDMENT).SerializeToString()
        if self._rng.randrange(3) == 0:
            rules = self._rng.choice((b"[" * 5000, b'{"a":' * 2000, b"NaN", b"null", b"\xff\xfe"))
            swarm_id = self._liar.scene.swarm_id
            body = _amendment(swarm_id, rules)
        made = sign(Kind.AMENDMENT, body, self._liar.scene.owner).to_proto()
        request.messages.add(message=made, hops_left=2)

    def headers(self, _key: NodeKey) -> Message:
        """Ids, up to more than may be asked for."""
        ids = [self._id() for _ in range(self._rng.choice((0, 1, 3, 256, 257)))]
        return gossip_pb2.HeadersRequest(contributions=ids)

    def payload(self, _key: NodeKey) -> Message:
        """Somebody's payload, from an odd place on."""
        return gossip_pb2.PayloadRequest(contribution=self._id(), offset=self._offset())

    def result(self, _key: NodeKey) -> Message:
        """A round that may be finished."""
        scene = self._liar.scene
        round_ = max(0, scene.round - self._rng.choice((0, 1, 1, 2, 70)))
        return gossip_pb2.ResultRequest(round=round_, base_digest=scene.digest)

    def lineage(self, _key: NodeKey) -> Message:
        """Rounds from anywhere on."""
        first, known = self._offset(), self._offset()
        return gossip_pb2.LineageRequest(first_round=first, known_round=known)

    def manifest(self, _key: NodeKey) -> Message:
        """The present state, the newest, or none."""
        digest = self._rng.choice((b"", self._liar.scene.digest, self._rng.randbytes(32)))
        return state_pb2.ManifestRequest(digest=digest)

    def piece(self, _key: NodeKey) -> Message:
        """A piece that may exist, from an odd place on."""
        digest = self._rng.choice((self._liar.scene.digest, self._rng.randbytes(32)))
        piece = self._rng.choice((0, 1, 2, 1024, 2**32 - 1))
        offset = min(self._offset(), 2**32 - 1)
        return state_pb2.PieceRequest(digest=digest, piece=piece, offset=offset)

    def held(self, _key: NodeKey) -> Message:
        """A corpus that nobody has, or none."""
        corpus = self._rng.choice((b"", self._rng.randbytes(32), self._rng.randbytes(33)))
        return shards_pb2.HeldRequest(corpus=corpus)

    def shard_bytes(self, _key: NodeKey) -> Message:
        """A range of a shard that does not exist, from an odd place on."""
        sha256 = self._rng.choice((b"", b"../manifest.json", self._rng.randbytes(32)))
        length = self._rng.choice((0, 1, 4 * 1024 * 1024, 4 * 1024 * 1024 + 1, 2**32 - 1))
        return shards_pb2.BytesRequest(sha256=sha256, offset=self._offset(), length=length)

    def dial(self, _key: NodeKey) -> Message:
        """A wish to be called back; there is nothing in it."""
        return reach_pb2.DialRequest()

    def hello(self, _key: NodeKey) -> Message:
        """A call back."""
        return reach_pb2.HelloRequest()

    def attach(self, _key: NodeKey) -> Message:
        """A wish to be attached to a relay, mostly under the session of the frames below."""
        session = _SESSION if self._rng.randrange(4) else self._rng.randbytes(8)
        return relay_pb2.AttachRequest(session=session, takes_pipes=bool(self._rng.randrange(4)))

    def frames(self, _key: NodeKey) -> Message:
        """Frames of pipes to the node itself, to the caller and to nobody, in and out of bounds."""
        rng, made = self._rng, relay_pb2.RelayFrames(session=_SESSION)
        victim = NodeId.of_key(self._liar.scene.victim.public_key)
        pipe = rng.choice((1, 1, 101, 2**31 - 9))
        for _ in range(rng.choice((0, 1, 3, 10, 30, 256))):
            made.frames.add(
                pipe=pipe,
                open=rng.choice((b"", victim, victim, rng.randbytes(20))),
                credit=rng.choice((0, 0, 0, 1, 256 * 1024)),
                data=rng.randbytes(rng.choice((0, 1, 500, 500, 32 * 1024))),
                is_end=rng.randrange(8) == 0,
            )
            pipe += rng.choice((0, 0, 2))
        if rng.randrange(4) == 0:
            made.frames.add(
                pipe=rng.choice((0, 1, 2, 2**31, 2**32 - 1)),
                open=rng.randbytes(rng.choice((0, 19, 20, 21))),
                credit=rng.choice((0, 256 * 1024 + 1, 2**32 - 1)),
                data=bytes(rng.choice((0, 32 * 1024 + 1))),
            )
        return made

    def _id(self) -> bytes:
        heard = self._liar.scene.heard
        real = [heard_.signature[:32] for heard_ in heard]
        return self._rng.choice((*real, self._rng.randbytes(32), b"", bytes(32)))

    def _offset(self) -> int:
        return self._rng.choice((0, 1, 3, 4, 4095, 2**31, 2**53, 2**63, 2**64 - 1))


_MAKERS: Mapping[str, Callable[[Requests, NodeKey], Message]] = {
    "Gossip/Push": Requests.push,
    "Gossip/Headers": Requests.headers,
    "Gossip/Payload": Requests.payload,
    "Gossip/Result": Requests.result,
    "Gossip/Lineage": Requests.lineage,
    "State/Manifest": Requests.manifest,
    "State/Piece": Requests.piece,
    "Shards/Held": Requests.held,
    "Shards/Bytes": Requests.shard_bytes,
    "Reach/Dial": Requests.dial,
    "Reach/Hello": Requests.hello,
    "Relay/Attach": Requests.attach,
    "Relay/Push": Requests.frames,
}


def _amendment(swarm_id: bytes, rules: bytes) -> bytes:
    return rounds_pb2.Amendment(swarm_id=swarm_id, rules=rules).SerializeToString()


async def call_all(
    port: int, token: SwarmToken, requests: Requests, is_enough: Callable[[int], Awaitable[bool]]
) -> Counter[str]:
    """Call as one identity after the other until it is enough.

    Args:
        port: Where the node answers calls, on this machine.
        token: The swarm's.
        requests: What to send.
        is_enough: Told how many calls ended, after each identity; says whether to stop.

    Returns:
        Calls by how they ended, and the identities.
    """
    outcomes: Counter[str] = Counter()
    numbers, is_over = itertools.count(), False

    async def rotate() -> None:
        nonlocal is_over
        while not is_over:
            await _be(Member(token, make_key("calls", next(numbers)), port), requests, outcomes)
            outcomes["identities"] += 1
            is_over = is_over or await is_enough(outcomes.total() - outcomes["identities"])

    async with asyncio.TaskGroup() as group:
        for _ in range(IDENTITIES_AT_ONCE):
            group.create_task(rotate())
    return outcomes


async def _be(member: Member, requests: Requests, outcomes: Counter[str]) -> None:
    """One identity's life: calls, a few at a time, until it is banned or has made enough."""
    try:
        for _ in range(CALLS_OF_IDENTITY // CALLS_AT_ONCE):
            made = [requests.make(member.key) for _ in range(CALLS_AT_ONCE)]
            ends = await asyncio.gather(*(_try(member, *request) for request in made))
            outcomes.update(ends)
            if "PERMISSION_DENIED" in ends:
                return
    finally:
        await member.close()


async def _try(member: Member, method: str, request: bytes, nonce: bytes) -> str:
    try:
        await member.call(method, request, nonce)
    except grpc.aio.AioRpcError as error:
        return "INTERNAL ERROR" if _is_bug(error) else error.code().name
    return "OK"


def _is_bug(error: Any) -> bool:
    return error.code() is grpc.StatusCode.INTERNAL or error.code() is grpc.StatusCode.UNKNOWN


async def fill_tables(port: int, token: SwarmToken, scene: Scene, share: float) -> None:
    """Make a node remember as many callers, signers and statements as it ever will.

    Args:
        port: Where the node answers calls, on this machine.
        token: The swarm's.
        scene: The swarm.
        share: How much of that, 0 to 1.
    """
    numbers = iter(range(round(share * NUM_CALLERS)))

    async def offend() -> None:
        for number in numbers:
            member = Member(token, make_key("filler", number), port)
            forged = [_stale(scene, make_key("forger"), number * 8 + n) for n in range(5)]
            for relayed in forged:
                relayed.message.signature = bytes(64)
            await _try(member, "Gossip/Push", _push(forged), bytes(16))
            await member.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(IDENTITIES_AT_ONCE):
            group.create_task(offend())
    talker = Member(token, make_key("talker"), port)
    for start in range(0, round(share * NUM_STATEMENTS), limits.MAX_PUSH_MESSAGES):
        said = range(start, start + limits.MAX_PUSH_MESSAGES)
        known = [_stale(scene, make_key("signer", n % NUM_SIGNERS), n) for n in said]
        await _try(talker, "Gossip/Push", _push(known), bytes(16))
    await talker.close()


def _stale(scene: Scene, key: NodeKey, number: int) -> envelope_pb2.Relayed:
    """A ready of long ago, which is noted as seen and changes nothing."""
    body = rounds_pb2.Ready(swarm_id=scene.swarm_id, base_digest=bytes(32), inner_steps=number)
    made = sign(Kind.READY, body.SerializeToString(), key)
    return envelope_pb2.Relayed(message=made.to_proto(), hops_left=0)


def _push(relayed: Iterable[envelope_pb2.Relayed]) -> bytes:
    return gossip_pb2.PushRequest(messages=relayed).SerializeToString()


async def ask(member: Member, method: str, request: Message, kind: type[Any]) -> Any:
    """One honest question and its parsed answer."""
    return kind.FromString(await member.call(method, request.SerializeToString()))


async def overhear(
    token: SwarmToken, port: int
) -> tuple[state_pb2.StateManifest, list[envelope_pb2.Signed]]:
    """The newest state's manifest, and real statements about finished rounds."""
    member = Member(token, make_key("listener"), port)
    try:
        manifest = await ask(
            member, "State/Manifest", state_pb2.ManifestRequest(), state_pb2.StateManifest
        )
        lineage = await ask(
            member, "Gossip/Lineage", gossip_pb2.LineageRequest(), gossip_pb2.LineageReply
        )
        heard = [confirm for finished in lineage.rounds for confirm in finished.confirms]
        for finished in lineage.rounds[-3:]:
            wanted = gossip_pb2.ResultRequest(
                round=finished.round, base_digest=finished.base_digest
            )
            reply = await ask(member, "Gossip/Result", wanted, gossip_pb2.ResultReply)
            heard += reply.headers
        return manifest, heard
    finally:
        await member.close()
