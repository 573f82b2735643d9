"""Fuzzes a live node, with and without its swarm's token, and judges how it bore that.

Run it with `make fuzz`, or `python tests/fuzz/fuzz_run.py --help`. The same seed sends the same
inputs in the same order from each sender; how calls interleave is the machine's affair.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from fuzz_calls import Requests, call_all, fill_tables, overhear
from fuzz_datagrams import Pace, of_members, of_strangers
from fuzz_dht import overhear_dht
from fuzz_doors import Amounts, Doors
from fuzz_mutation import Mutator
from fuzz_nodes import LiveNode, start_node
from fuzz_scene import Liar, Scene, make_key
from fuzz_strangers import Stranger, member_context

from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.datagram import CONTEXT
from neuroswarm.testing.waiting import wait_until
from neuroswarm.v1 import envelope_pb2, heartbeat_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, sign

MAX_GROWTH_MB = 20.0
WARM_UP_SHARE = 0.1
"""Part of the run that fills tables and caches, all of them bounded, before memory is measured."""

CALM_S = 120.0
"""Time for the swarm to be as before once the noise is over."""

ROUNDS_AFTER = 2
LOOK_EVERY = 500
"""Calls between two looks at how many got in."""


@dataclass(frozen=True)
class Plan:
    """How much of what is sent."""

    seed: int
    stranger_datagrams: int = 700_000
    member_datagrams: int = 310_000
    calls: int = 105_000
    connections: int = 5_000
    posts: int = 2_000
    dht_stranger_datagrams: int = 100_000
    dht_member_datagrams: int = 30_000
    dht_liars: int = 120
    spoofed: int = 2_000
    http_probes: int = 500
    relay_members: int = 160
    dialled_members: int = 40

    def share(self, fraction: float) -> Plan:
        """A part of it, of another seed."""
        numbers = {
            name: max(1, round(getattr(self, name) * fraction))
            for name in self.__dataclass_fields__
            if name != "seed"
        }
        return Plan(self.seed + 1, **numbers)


QUICK = {
    "stranger_datagrams": 3_000,
    "member_datagrams": 1_500,
    "calls": 300,
    "connections": 60,
    "posts": 30,
    "dht_stranger_datagrams": 1_000,
    "dht_member_datagrams": 480,
    "dht_liars": 6,
    "spoofed": 150,
    "http_probes": 20,
    "relay_members": 8,
    "dialled_members": 2,
}


@dataclass
class Tally:
    """What was sent, and how memory and training went."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def note(self, what: str, value: object) -> None:
        """One line of the table."""
        self.lines.append((what, str(value)))
        print(f"{what:<46} {value}", flush=True)  # noqa: T201


class Fuzz:
    """One run against two honest nodes, the first of which is the target."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Prepare to work in `folder`."""
        self.plan = plan
        self.tally = Tally()
        self._folder = folder
        self._token = SwarmToken(random.Random(plan.seed).randbytes(32))
        self._owner = make_key("owner", plan.seed)
        self.nodes: list[LiveNode] = []
        self.captured: list[bytes] = []
        self.dht_heard: list[bytes] = []
        self._dht_port = 0

    @property
    def target(self) -> LiveNode:
        """The node that is fuzzed."""
        return self.nodes[0]

    def run(self) -> Tally:
        """Do it all; AssertionError says what went wrong."""
        try:
            self._start()
            scene = self._overhear()
            share = min(1.0, self.plan.calls / Plan.calls)
            filling = fill_tables(self.target.grpc_port, self._token, scene, share)
            asyncio.run(filling)
            self.tally.note("resident MB with full tables", f"{self.target.rss_mb():.1f}")
            self._send(scene, self.plan.share(WARM_UP_SHARE), "warm-up")
            self._wait_for_rounds(1)
            before, rss = self.target.status(), self.target.rss_mb()
            started = time.monotonic()
            self._send(scene, self.plan, "run")
            self.tally.note("seconds", f"{time.monotonic() - started:.0f}")
            self._judge(before, rss)
        finally:
            for node in self.nodes:
                node.kill()
        return self.tally

    # -- before ----------------------------------------------------------------------

    def _start(self) -> None:
        token = self._folder / "token"
        token.write_text(self._token.text)
        text = self._folder / "text"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
        flags = ["--token-file", str(token), "--owner", self._owner.public_key.hex()]
        self.nodes.append(start_node(self._folder / "target", text, flags=flags))
        self.nodes.append(start_node(self._folder / "peer", text, self.target.url, flags=flags))
        wait_until(lambda: self.target.status()["foreign_contributions_used"] >= 1, within_s=CALM_S)
        self.tally.note("resident MB when it trains", f"{self.target.rss_mb():.1f}")

    def _overhear(self) -> Scene:
        """Be greeted by both nodes, so that real datagrams are at hand; ask what members may."""
        sealer = Sealer(self._token.datagram_key)
        peer_id = self.nodes[1].status()["node_id"]
        victims: list[envelope_pb2.Signed] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.bind(("127.0.0.1", 0))
            ear.settimeout(30)
            key, port = make_key("listener"), ear.getsockname()[1]
            own = Heartbeat(b"", 1, 0.0, "127.0.0.1", 9, port, 9, 1, is_training=False)
            for sequence in range(1, 40):
                record = Heartbeat(**{**_fields(own), "sequence": sequence})
                made = sign(Kind.HEARTBEAT, record.encode(), key).to_proto()
                data = heartbeat_pb2.HeartbeatDatagram(own=made).SerializeToString()
                for node in self.nodes:
                    ear.sendto(sealer.seal(data, CONTEXT), ("127.0.0.1", node.udp_port))
                self.captured.append(ear.recv(2048))
                said = heartbeat_pb2.HeartbeatDatagram.FromString(
                    sealer.open(self.captured[-1], CONTEXT)
                )
                if _is_of(said.own, peer_id):
                    victims.append(said.own)
                else:
                    told = heartbeat_pb2.Heartbeat.FromString(said.own.body)
                    self._dht_port = told.dht_port
                if victims and self._dht_port and len(self.captured) >= 8:
                    break
        manifest, heard = asyncio.run(overhear(self._token, self.target.grpc_port))
        scene = Scene.read(manifest, victims[-1], self._owner)
        scene.heard = heard
        self.dht_heard = overhear_dht(self._dht_port, sealer)
        scene.follow(self.target.status())
        return scene

    # -- during ----------------------------------------------------------------------

    def _send(self, scene: Scene, plan: Plan, what: str) -> None:
        say = self.tally.note
        say(f"{what}: seed", plan.seed)
        start = self.target.status()
        mutator = Mutator(random.Random(plan.seed))
        self._send_as_stranger(scene, plan, mutator, what)
        middle = self.target.status()
        self._send_as_member(scene, plan, mutator, what)
        end = self.target.status()
        self._attack_doors(scene, plan, what)
        last = self.target.status()
        parts = (start, middle), (middle, end), (end, last)
        for name, kind in zip(("without token", "with token", "other doors"), parts, strict=True):
            steps = kind[1]["total_inner_steps"] - kind[0]["total_inner_steps"]
            rounds = kind[1]["rounds_committed"] - kind[0]["rounds_committed"]
            say(f"{what}: {name}: steps, rounds meanwhile", f"{steps}, {rounds}")
            assert steps > 0, f"no inner step during the {what} {name}"
        for name in ("requests_admitted", "requests_of_banned", "requests_of_floods"):
            say(f"{what}: {name}", end[name] - start[name])
        for name in ("datagrams_received", "datagrams_unopened"):
            say(f"{what}: {name}", end[name] - start[name])
        for name in ("heartbeats_dropped", "gossip", "statements"):
            say(f"{what}: {name}", _gained(start[name], end[name]))
        say(f"{what}: bans", len(end["bans"]))
        say(f"{what}: resident MB after", f"{self.target.rss_mb():.1f}")

    def _send_as_stranger(self, scene: Scene, plan: Plan, mutator: Mutator, what: str) -> None:
        kinds: Counter[str] = Counter()
        datagrams = of_strangers(mutator, self.captured, kinds)
        self._send_datagrams(scene, datagrams, plan.stranger_datagrams, f"{what}: without token")
        self.tally.note(f"{what}: without token: kinds", dict(kinds))
        stranger = Stranger(mutator)
        for _ in range(plan.connections):
            stranger.knock(self.target.grpc_port)
        for _ in range(plan.posts):
            stranger.write_http(self.target.http[1])
            stranger.post_garbage(self.target.http[1])
        self.tally.note(f"{what}: without token: TCP", dict(stranger.counts))

    def _send_as_member(self, scene: Scene, plan: Plan, mutator: Mutator, what: str) -> None:
        kinds: Counter[str] = Counter()
        liar = Liar(scene, mutator)
        sealer = Sealer(self._token.datagram_key)
        datagrams = of_members(mutator, liar, sealer, self.captured, kinds)
        self._send_datagrams(scene, datagrams, plan.member_datagrams, f"{what}: with token")
        self.tally.note(f"{what}: with token: kinds", dict(kinds))
        stranger, tls = Stranger(mutator), member_context(self._token, plan.seed)
        for _ in range(plan.posts):
            stranger.post_broken(self.target.http[1], liar, sealer)
        for _ in range(plan.posts // 10):
            stranger.write_http2(self.target.grpc_port, tls)
        self.tally.note(f"{what}: with token: TCP", dict(stranger.counts))
        base, looked_at = self.target.status()["requests_admitted"], 0

        async def is_enough(num_calls: int) -> bool:
            nonlocal looked_at
            if num_calls < min(looked_at + LOOK_EVERY, plan.calls):
                return False  # looking costs the node as much as some calls
            looked_at = num_calls
            status = await asyncio.to_thread(self.target.status)
            scene.follow(status)
            return bool(status["requests_admitted"] - base >= plan.calls)

        calls = call_all(self.target.grpc_port, self._token, Requests(liar), is_enough)
        outcomes = asyncio.run(calls)
        self.tally.note(f"{what}: with token: calls", dict(outcomes))
        assert not outcomes["INTERNAL ERROR"], "a handler failed"

    def _attack_doors(self, scene: Scene, plan: Plan, what: str) -> None:
        doors = self._doors(scene, plan.seed, what)
        doors.attack(
            Amounts(
                stranger_datagrams=plan.dht_stranger_datagrams,
                member_datagrams=plan.dht_member_datagrams,
                liars=plan.dht_liars,
                spoofed=plan.spoofed,
                http_probes=plan.http_probes,
                relay_members=plan.relay_members,
                dialled_members=plan.dialled_members,
            )
        )
        peer = self.nodes[1].status()["node_id"]
        wait_until(lambda: doors.finds(peer), within_s=CALM_S, what="the peer to be found")

    def _doors(self, scene: Scene, seed: int, what: str) -> Doors:
        def note(line: str, value: object) -> None:
            self.tally.note(f"{what}: {line}", value)

        heard = self.dht_heard
        return Doors(self.target, self._dht_port, self._token, scene, heard, seed, note)

    def _send_datagrams(self, scene: Scene, datagrams: Any, target: int, what: str) -> None:
        pace = Pace(self.target, scene.follow)
        started = time.monotonic()
        try:
            pace.send(datagrams, target)
        finally:
            pace.close()
        rate = pace.num_received / (time.monotonic() - started)
        self.tally.note(
            f"{what}: datagrams",
            f"{pace.num_sent} sent, {pace.num_received} received ({rate:.0f} a second), "
            f"resident MB {self.target.rss_mb():.1f}",
        )

    # -- after -----------------------------------------------------------------------

    def _judge(self, before: Mapping[str, Any], rss_mb: float) -> None:
        say, target, peer = self.tally.note, self.target, self.nodes[1]
        self._wait_for_rounds(ROUNDS_AFTER)
        wait_until(self._has_one_digest, within_s=CALM_S)
        after, after_mb = target.status(), target.rss_mb()
        say("resident MB, before and after", f"{rss_mb:.1f}, {after_mb:.1f}")
        for name in ("total_inner_steps", "round", "foreign_contributions_used", "current_loss"):
            say(f"{name}, before and after", f"{before[name]}, {after[name]}")
        victim = peer.status()["node_id"]
        assert all(ban["node_id"] != victim for ban in after["bans"]), "the victim was banned"
        assert all(c["node_id"] != victim for c in after["conduct"]), "the victim was blamed"
        used = after["foreign_contributions_used"] - before["foreign_contributions_used"]
        assert used > 0, "the honest peer's contributions are used no more"
        ours, theirs = target.digests(), peer.digests()
        shared = ours.keys() & theirs.keys()
        differing = [r for r in shared if ours[r] != theirs[r]]
        say("rounds known to both, of them different", f"{len(shared)}, {len(differing)}")
        assert after_mb - rss_mb < MAX_GROWTH_MB, f"grew by {after_mb - rss_mb:.1f} MB"
        for node in self.nodes:
            code = node.stop()
            assert code == 0, f"{node.folder.name} ended with {code}"
            assert not node.complaints(), node.complaints()
        say("log lines of target", len(target.log.splitlines()))

    def _wait_for_rounds(self, count: int) -> None:
        """Wait until both nodes have finished so many more rounds, with each other's help."""
        first = [node.status() for node in self.nodes]

        def is_there() -> bool:
            return all(
                node.status()["foreign_contributions_used"]
                >= was["foreign_contributions_used"] + count
                for node, was in zip(self.nodes, first, strict=True)
            )

        wait_until(is_there, within_s=CALM_S)

    def _has_one_digest(self) -> bool:
        one, two = (node.status() for node in self.nodes)
        return bool((one["round"], one["digest"]) == (two["round"], two["digest"]))


def _fields(record: Heartbeat) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _is_of(signed: envelope_pb2.Signed, node_id: str) -> bool:
    return NodeId.of_key(signed.public_key).hex() == node_id


def _gained(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: n - before.get(name, 0) for name, n in after.items() if n - before.get(name, 0)}


def main(arguments: list[str] | None = None) -> int:
    """Run it; exit code 1 if the node did not bear it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="of all inputs; default: a new one")
    parser.add_argument("--quick", action="store_true", help="the short form, as in the tests")
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts")
    parser.add_argument("--keep", type=Path, help="folder for the nodes' logs and states")
    chosen = parser.parse_args(arguments)
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    plan = Plan(seed, **(QUICK if chosen.quick else {}))
    if chosen.scale != 1.0:
        numbers = plan.share(chosen.scale)
        plan = Plan(seed, **{n: getattr(numbers, n) for n in QUICK})
    print(f"seed {seed}", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        kept = chosen.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        Fuzz(plan, kept).run()
    print("borne")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
