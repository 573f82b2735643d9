"""Attacks the doors of a live node beside heartbeats and calls, and judges how it bore that.

The DHT's port, what the node relays, calls back and echoes: that each attack has reached its door,
that every bound held, and that nobody who did not ask is sent more than the bounds say.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz_datagrams import Pace, of_strangers
from fuzz_dht import SlowPace, find_publishers, of_dht_members
from fuzz_dht_liars import KINDS, Liars, Sink, Stage
from fuzz_mutation import Mutator
from fuzz_nodes import LiveNode
from fuzz_reflection import CallsBack, Reflected, ask_as_victim, probe_as_victim
from fuzz_relay import RelayCrowd
from fuzz_scene import Liar, Scene
from fuzz_strangers import Stranger

from neuroswarm.dht import gate
from neuroswarm.dht.exchange import NUM_SENDS
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net import echo
from neuroswarm.reach.dialling import DIALS_BURST, DIALS_PER_S
from neuroswarm.relay.switchboard import RelayBounds
from neuroswarm.testing.waiting import wait_until
from neuroswarm.values import NodeId

LIES_S = 30.0
"""Longest time until the node has asked each of the liars that speak."""

LEAST_LIES = 1
NUM_NODES = 2
"""Nodes that hear of the liars, and so may ask whom they name."""

LET_GO_S = 30.0
HTTP_PROBES = 300
"""Probes over HTTP from one address of which some are refused: 100 are answered at once, and then
5 a second."""

ENOUGH = 400
"""Datagrams of members among which there is one of each kind, whatever the seed."""

_PAUSE_S = 0.02
_BAD = ("malformed", "bad_signature", "unasked")


@dataclass(frozen=True)
class Amounts:
    """How much of what is sent."""

    stranger_datagrams: int
    member_datagrams: int
    liars: int
    spoofed: int
    """Questions, and as many probes, in the name of a victim."""
    http_probes: int
    relay_members: int
    dialled_members: int


@dataclass
class Doors:
    """The target's doors, and what is known of it."""

    target: LiveNode
    dht_port: int
    token: SwarmToken
    scene: Scene
    heard: list[bytes]
    """Real datagrams of the DHT."""
    seed: int
    note: Callable[[str, object], None]
    sealer: Sealer = field(init=False)

    def __post_init__(self) -> None:
        self.sealer = Sealer(self.token.datagram_key)

    def _mutator(self, part: str) -> Mutator:
        """One for each part, since how much of its randomness one takes is the machine's affair."""
        return Mutator(random.Random(f"{self.seed} {part}"))

    def attack(self, amounts: Amounts) -> None:
        """Do it all; AssertionError says what was not borne."""
        parts: tuple[Callable[[], None], ...] = (
            lambda: self._fuzz_dht_as_stranger(amounts.stranger_datagrams),
            lambda: self._fuzz_dht_as_member(amounts),
            lambda: self._spoof(amounts.spoofed),
            lambda: self._flood_probes(amounts.http_probes),
            lambda: self._relay(amounts.relay_members),
            lambda: self._call_back(amounts.dialled_members),
        )
        seconds = []
        for part in parts:
            started = time.monotonic()
            part()
            seconds.append(round(time.monotonic() - started, 1))
        self.note("other doors: seconds of each", seconds)

    # -- the DHT -----------------------------------------------------------------------

    def _fuzz_dht_as_stranger(self, num: int) -> None:
        kinds: Counter[str] = Counter()
        before = self._dht()
        pace = Pace(self.target, self._follow, port=self.dht_port, count=_dht_received)
        try:
            pace.send(of_strangers(self._mutator("strangers"), self.heard, kinds), num)
        finally:
            pace.close()
        after = self._dht()
        unopened = after["datagrams_unopened"] - before["datagrams_unopened"]
        self.note("DHT, without token: received, unopened", f"{pace.num_received}, {unopened}")
        self.note("DHT, without token: kinds", dict(kinds))
        assert pace.num_received >= num > 0
        assert 0 < unopened <= pace.num_received
        assert after["dropped"].get("malformed", 0) == before["dropped"].get("malformed", 0)

    def _fuzz_dht_as_member(self, amounts: Amounts) -> None:
        kinds: Counter[str] = Counter()
        sink, started, before = Sink(), time.monotonic(), self._dht()
        mutator, swarm_id = self._mutator("liars"), self.scene.swarm_id
        stage = Stage(self.dht_port, self.sealer, mutator, swarm_id, sink, Counter())
        liars = Liars(stage)
        num_each = max(1, amounts.member_datagrams // amounts.liars)
        liar = Liar(self.scene, self._mutator("members"))
        datagrams = of_dht_members(liar.mutator, liar, self.sealer, self.heard, kinds)
        pace, num_received = SlowPace(self.target, self.dht_port, liars.tend), 0
        try:
            for _ in range(min(amounts.liars, len(KINDS))):
                liars.add()
            self._hear_lies(liars)
            for number in range(amounts.liars):
                if number >= len(KINDS):
                    liars.add()
                num_received += pace.send(datagrams, num_each, net=10 + number % 100)
            sink.look()
        finally:
            liars.close()
            sink.close()
        self._judge_dht(before, time.monotonic() - started, stage, kinds, num_received)

    def _hear_lies(self, liars: Liars) -> None:
        """Answer until every liar was asked some times."""
        pause, deadline = threading.Event(), time.monotonic() + LIES_S
        while any(liars.stage.told[kind] < LEAST_LIES for kind in liars.kinds):
            assert time.monotonic() < deadline, f"not asked enough: {dict(liars.stage.told)}"
            liars.tend()
            pause.wait(_PAUSE_S)

    def _judge_dht(
        self,
        before: dict[str, Any],
        seconds: float,
        stage: Stage,
        kinds: Counter[str],
        num_sent: int,
    ) -> None:
        after, sink = self._dht(), stage.sink
        dropped = {
            why: num - before["dropped"].get(why, 0) for why, num in after["dropped"].items()
        }
        self.note("DHT, with token: kinds", dict(kinds))
        self.note("DHT, with token: sent; dropped", f"{num_sent}; {dropped}")
        answered = after["requests_answered"] - before["requests_answered"]
        self.note("DHT, with token: answered, lies told", f"{answered}, {dict(stage.told)}")
        self.note("DHT: records kept; refused", f"{after['records']}; {after['records_refused']}")
        may_come = NUM_SENDS * (gate.PROBES_BURST + 1 + seconds * gate.PROBES_PER_S) * NUM_NODES
        came = f"{sink.num_datagrams} of {sink.num_bytes} bytes in {seconds:.0f} s"
        self.note("DHT: to whom liars name", f"{came} (at most {may_come:.0f})")
        assert sink.num_datagrams <= may_come, "a stranger is asked too often"
        assert answered > 0, "some questions were in order"
        assert num_sent < ENOUGH or all(dropped.get(why, 0) > 0 for why in _BAD), dropped
        if stage.told["stores"]:
            assert after["records"] > before["records"], "what is in order is kept"
            assert sum(after["records_refused"].values()) > 0, "and what is not is refused"

    def finds(self, node_id: str) -> bool:
        """Whether a newcomer learns of an honest node from the target's DHT."""
        swarm_id = self.scene.swarm_id
        return bytes.fromhex(node_id) in find_publishers(self.dht_port, self.sealer, swarm_id)

    # -- in the name of others -----------------------------------------------------------

    def _spoof(self, num: int) -> None:
        asked = ask_as_victim(self.sealer, self.dht_port, num, self._mutator("spoofed"))
        self.note("DHT, in a victim's name: questions", asked)
        _check(asked, gate.UNPROVEN_PER_S, gate.UNPROVEN_BURST)
        probed = probe_as_victim(self.sealer, self.target.udp_port, num, self._mutator("probes"))
        self.note("probes in a victim's name", probed)
        _check(probed, echo.PROBES_PER_S, echo.BURST)
        assert probed.bytes_received <= probed.bytes_sent

    def _flood_probes(self, most: int) -> None:
        stranger = Stranger(self._mutator("HTTP"))
        stranger.flood_probes(self.target.http[1], self.sealer, most)
        self.note("probes over HTTP from one address", dict(stranger.counts))
        assert stranger.counts["probe: 200"] > 0
        assert most < HTTP_PROBES or stranger.counts["probe: 429"] > 0

    def _call_back(self, num_members: int) -> None:
        before, started = self.target.status()["calls_back"], time.monotonic()
        ports = (self.target.grpc_port, self.target.udp_port, self.target.http[1])
        calls = CallsBack(self.token, Liar(self.scene, self._mutator("dialled")), ports)
        asyncio.run(calls.run(num_members))
        num_made = self.target.status()["calls_back"] - before
        self.note("calls back: asked for", dict(calls.outcomes))
        came = f"{num_made}; {calls.num_connections} of {calls.num_bytes} bytes"
        self.note("calls back: made; to whom members name", came)
        each = DIALS_BURST + 1 + (time.monotonic() - started) * DIALS_PER_S
        assert 0 < num_made <= 2 * each * num_members, "two addresses for each that is asked for"
        assert calls.outcomes["FAILED_PRECONDITION"] > 0, "most of it was refused"

    def _relay(self, num_members: int) -> None:
        before = self.target.status()["relayed"]
        target = NodeId(bytes.fromhex(self.target.status()["node_id"]))
        crowd = RelayCrowd(self.token, self.target.grpc_port, target, self._mutator("relay"))
        most = {"nodes": 0, "pipes": 0}

        async def look() -> None:
            relayed = (await asyncio.to_thread(self.target.status))["relayed"]
            for name in most:
                most[name] = max(most[name], relayed[name])

        asyncio.run(crowd.run(num_members, look))
        after = self.target.status()["relayed"]
        gained = {name: after[name] - before[name] for name in ("bytes", "refused", "cut")}
        self.note("relay: calls", dict(crowd.outcomes))
        self.note("relay: at most; in all", f"{most}; {gained}")
        bounds = RelayBounds()
        assert 0 < most["nodes"] <= bounds.max_lines
        assert 0 < most["pipes"] <= bounds.max_pipes
        assert gained["refused"] > 0
        assert crowd.outcomes["number used before: OK"] == 0
        wait_until(self._relays_nothing, within_s=LET_GO_S, what="pipes of the gone to end")

    def _relays_nothing(self) -> bool:
        relayed = self.target.status()["relayed"]
        return not relayed["nodes"] and not relayed["pipes"]

    def _dht(self) -> dict[str, Any]:
        return self.target.status()["dht"]

    def _follow(self, status: dict[str, Any]) -> None:
        self.scene.follow(status)


def _dht_received(status: dict[str, Any]) -> int:
    return int(status["dht"]["datagrams_received"])


def _check(seen: Reflected, per_s: float, burst: float) -> None:
    """Some were answered, and no more than may be in the name of one endpoint."""
    assert 0 < seen.num_received <= burst + 1 + seen.seconds * per_s, seen
