"""A whole network in memory, with scripted faults, behind the protocols of `transport`.

Needs no sockets and makes no tasks; delays and deadlines are those of the event loop. The same
conformance tests run on it and on gRPC and UDP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from neuroswarm.service import State
from neuroswarm.testing.faults import (
    Fault,
    FaultScript,
    Passage,
    Place,
    is_across,
    is_between,
    limited,
)
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.values import Endpoint, NodeId

When = int | Callable[[Passage], bool]


class MemoryNetwork:
    """Carries calls and datagrams between its ends; each fault returned counts in `fired`."""

    def __init__(self, seed: int = 0) -> None:
        """Take the seed of every chance in it."""
        self._script = FaultScript(seed)
        self._partitions: list[Fault] = []
        self._rpcs: dict[NodeId, MemoryRpc] = {}
        self._rpcs_at: dict[tuple[NodeId, Endpoint], MemoryRpc] = {}
        self._datagrams: dict[Endpoint, MemoryDatagrams] = {}
        self._num_ends = 0

    def rpc(self, node_id: NodeId, endpoint: Endpoint | None = None) -> MemoryRpc:
        """A node's end for calls, to be started; it takes the place of an earlier one.

        With an endpoint, calls must come to it; without one it has an endpoint of its own making
        and takes calls to any.
        """
        self._num_ends += 1
        end = MemoryRpc(self, node_id, endpoint or self._make_endpoint(8101), endpoint is None)
        self._rpcs[node_id] = self._rpcs_at[node_id, end.address.endpoint] = end
        return end

    def datagrams(
        self, endpoint: Endpoint | None = None, node_id: NodeId | None = None
    ) -> MemoryDatagrams:
        """An end for datagrams, to be started; it takes the place of an earlier one.

        With a node id, faults strike it under that; otherwise under its endpoint.
        """
        self._num_ends += 1
        endpoint = endpoint or self._make_endpoint(9999)
        end = MemoryDatagrams(self, endpoint, node_id or endpoint)
        self._datagrams[endpoint] = end
        return end

    def drop(
        self,
        source: Place | None = None,
        target: Place | None = None,
        method: str | None = None,
        when: When | None = None,
        *,
        replies: bool = False,
    ) -> Fault:
        """Lose messages from `source` to `target`, None being any.

        Args:
            source: Who sends; for a reply, who answers.
            target: Who should receive.
            method: Only requests of it ("Gossip/Push"), or `faults.DATAGRAM`; None for all
                messages of the link, replies to the other side's requests included.
            when: How many to lose, or a function that says which; None for all.
            replies: With a method, lose the replies that `source` gives and not its requests.
        """
        is_reply = None if method is None else replies
        is_hit = is_between(source, target, method, is_reply=is_reply)
        if isinstance(when, int):
            is_hit = limited(is_hit, when)
        elif when is not None:
            is_link, is_wanted = is_hit, when

            def is_hit(passage: Passage) -> bool:
                return is_link(passage) and is_wanted(passage)

        return self._script.add(Fault(f"drop {source} {target} {method}", is_hit))

    def loss(self, probability: float, method: str | None = None) -> Fault:
        """Lose each message with this probability, replies and datagrams included."""

        def is_hit(passage: Passage) -> bool:
            if method not in (None, passage.method):
                return False
            return self._script.draw(passage, "loss") < probability

        return self._script.add(Fault(f"loss {probability}", is_hit))

    def delay(
        self,
        max_delay_s: float,
        source: Place | None = None,
        target: Place | None = None,
        method: str | None = None,
    ) -> Fault:
        """Let each message take up to `max_delay_s` longer, which also reorders them."""
        what = f"delay {source} {target} {method}"
        return self._script.add(Fault(what, is_between(source, target, method), max_delay_s))

    def partition(self, *groups: Collection[Place]) -> Fault:
        """Cut the groups off from one another; who is in none of them still talks to all."""
        fault = self._script.add(Fault("partition", is_across(groups)))
        self._partitions.append(fault)
        return fault

    def heal(self) -> None:
        """Join all partitions again."""
        while self._partitions:
            self._script.remove(self._partitions.pop())

    def remove(self, fault: Fault) -> None:
        """End one fault; it keeps its count."""
        self._script.remove(fault)

    def kill(self, node_id: NodeId) -> None:
        """Take a node off the network as if it lost power: calls in flight with it fail now.

        Its ends answer nothing and reach nobody until `rpc` and `datagrams` make new ones.
        """
        rpc = self._rpcs.pop(node_id, None)
        for place in [place for place in self._rpcs_at if place[0] == node_id]:
            del self._rpcs_at[place]
        if rpc is not None:
            rpc.cut_off()
        for endpoint, end in list(self._datagrams.items()):
            if end.place == node_id:
                del self._datagrams[endpoint]

    def find_rpc(self, node_id: NodeId, endpoint: Endpoint | None = None) -> MemoryRpc | None:
        """The end of a node; with an endpoint the one there, should two nodes have one key."""
        newest = self._rpcs.get(node_id)
        there = None if endpoint is None else self._rpcs_at.get((node_id, endpoint))
        return there if there is not None and there.state is State.RUNNING else newest

    def find_datagrams(self, endpoint: Endpoint) -> MemoryDatagrams | None:
        """Who has this endpoint for datagrams, unless it was killed."""
        return self._datagrams.get(endpoint)

    def strike(self, passage: Passage) -> float | None:
        """Seconds that a message takes; None: it is lost."""
        return self._script.strike(passage)

    async def carry(self, passage: Passage) -> bool:
        """Wait as long as the message takes; False if it is lost."""
        delay_s = self.strike(passage)
        if delay_s is None:
            return False
        await asyncio.sleep(delay_s)
        return True

    def _make_endpoint(self, port: int) -> Endpoint:
        return Endpoint(f"10.0.{self._num_ends >> 8}.{self._num_ends & 255}", port)
