"""Wires a node's parts together; nothing is started, read or sent here.

Knows who needs whom, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.diloco.pieces import shape_of
from neuroswarm.discovery.host_names import Lookup
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.gossip.asking import Asker
from neuroswarm.gossip.service import GossipService
from neuroswarm.gossip.serving import RoundsServer
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.address_quota import choose_quota
from neuroswarm.membership.door import Door
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.metering.meter import Meter
from neuroswarm.node.acquaintance import Acquaintance, make_acquaintance
from neuroswarm.node.carriers import Carriers
from neuroswarm.node.committing import Committer
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.driver import RoundDriver
from neuroswarm.node.finding import Finder, make_finder
from neuroswarm.node.holdings import Holdings
from neuroswarm.node.home import Home
from neuroswarm.node.inquiry import Inquirer
from neuroswarm.node.intake import Cohort, Intake
from neuroswarm.node.joining import LISTEN_S, Joiner
from neuroswarm.node.relaying import Relaying, assemble_relaying
from neuroswarm.node.replica import Replica
from neuroswarm.node.resuming import Resuming
from neuroswarm.node.round_parts import Observer, RoundParts
from neuroswarm.node.thrift import MeteredUplink, Thrift
from neuroswarm.node.voice import Voice
from neuroswarm.reach.service import ReachService
from neuroswarm.service import Service
from neuroswarm.transfer.donor import StateDonor
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat

ARCHIVE_BYTES = 512 * 1024 * 1024
"""Payloads of the latest rounds kept for late peers, in bytes."""


@dataclass(frozen=True, slots=True)
class Membership:
    """How a node finds its peers and is found."""

    peers: PeerTable
    door: Door
    record: OwnRecord
    heartbeat: HeartbeatService
    acquaintance: Acquaintance
    directory: TrackerDirectory
    reach: ReachService
    relaying: Relaying
    finder: Finder

    @property
    def services(self) -> tuple[Service, ...]:
        """Its parts that run, in the order of their start."""
        return (
            self.heartbeat, self.acquaintance, self.reach, self.relaying.lines, self.finder,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoundsRoom:
    """How a node takes part in rounds."""

    crowd: Crowd
    intake: Intake
    gossip: GossipService
    driver: RoundDriver
    joiner: Joiner
    downloader: StateDownloader
    donor: StateDonor
    thrift: Thrift

    def peers_step_s(self) -> list[float]:
        """Seconds of a first step at the peers that take part; heartbeats alone give no say."""
        return self.crowd.steps_s(self.driver.electorate.expected_ballots)


def make_cohort(swarm_name: str, replica: Replica) -> Cohort:
    """The swarm and architecture that this node belongs to."""
    fragments = replica.fragments
    architecture = fragments.architecture
    head = b"neuroswarm v1 swarm\0" + swarm_name.encode() + b"\0"
    # Without frozen parameters the base is empty, and the id is of name and architecture alone.
    swarm_id = hashlib.sha256(head + architecture + fragments.base).digest()
    shape = shape_of(fragments.names, fragments.sizes)
    return Cohort(swarm_id, architecture, shape, fragments.base)


def assemble_membership(
    config: SwarmNodeConfig,
    carriers: Carriers,
    *,
    home: Home,
    tokens: TokenRing,
    describe: Callable[[], Heartbeat],
    hints: tuple[Endpoint, ...],
    lookup: Lookup,
    locate: Callable[[], Endpoint],
    clock: Clock,
) -> Membership:
    """The parts that know the peers."""
    peers = PeerTable(
        home.key.node_id,
        config.heartbeat.interval_s,
        max_per_address=choose_quota(config.network.max_peers_per_address, is_open=tokens.is_open),
    )
    door = Door(peers, protocol=config.network.protocol_version)
    carriers.rpc.guard(lambda caller, num_bytes: door.admit(caller, num_bytes, clock.monotonic()))
    record = OwnRecord(home.key, describe, incarnation=home.folder.incarnation)
    heartbeat = HeartbeatService(
        config.heartbeat,
        datagrams=carriers.datagrams,
        record=record,
        peers=peers,
        clock=clock,
        hints=hints,
    )
    acquaintance = make_acquaintance(
        config.network,
        home.folder.path,
        tokens=tokens,
        record=record,
        peers=peers,
        heartbeat=heartbeat,
        lookup=lookup,
        interval_s=config.heartbeat.interval_s,
        clock=clock,
    )
    directory = TrackerDirectory(peers, sealer=tokens.sealer, clock=clock, record=record)
    reach = ReachService(
        carriers.rpc,
        peers,
        announced=lambda: record.describe().hosts,
        clock=clock,
        on_change=heartbeat.announce_now,
    )
    relaying = assemble_relaying(config.relay, carriers, reach, peers, clock=clock)
    relaying.lines.on_change = heartbeat.announce_now
    finder = make_finder(
        config.dht, carriers.dht_datagrams, heartbeat,
        key=home.key, record=record, peers=peers, locate=locate, clock=clock,
    )  # fmt: skip
    return Membership(
        peers, door, record, heartbeat, acquaintance, directory, reach, relaying, finder
    )


def make_downloader(
    carriers: Carriers, cohort: Cohort, crowd: Crowd, *, folder: Path | None, clock: Clock
) -> StateDownloader:
    """What downloads this cohort's states, into that folder."""
    return StateDownloader(
        carriers.rpc,
        cohort.architecture,
        cohort.shape,
        folder=folder,
        blame=crowd.misbehaved,
        clock=clock,
    )


def make_gossip(carriers: Carriers, intake: Intake, crowd: Crowd, *, clock: Clock) -> GossipService:
    """What spreads statements to the crowd, and takes them in."""
    return GossipService(
        carriers.rpc,
        listener=intake,
        neighbours=crowd,
        clock=clock,
        seed=int.from_bytes(crowd.me[:8], "little"),
    )


def make_voice(
    home: Home,
    cohort: Cohort,
    gossip: GossipService,
    thrift: Thrift,
    *,
    is_mute: Callable[[], bool],
) -> Voice:
    """What speaks for this node in rounds."""
    return Voice(
        home.key,
        cohort.swarm_id,
        home.said,
        gossip,
        is_mute=is_mute,
        max_inline_bytes=thrift.max_inline_bytes,
    )


def make_crowd(config: SwarmNodeConfig, cohort: Cohort, peers: PeerTable, clock: Clock) -> Crowd:
    """Who takes part, as this node sees it."""
    return Crowd(
        peers,
        cohort.swarm_id,
        clock,
        mute_after_s=config.rounds.mute_after_s,
        protocol=config.network.protocol_version,
    )


def assemble_rounds(
    config: SwarmNodeConfig,
    carriers: Carriers,
    *,
    home: Home,
    cohort: Cohort,
    replica: Replica,
    peers: PeerTable,
    is_voting: Callable[[], bool],
    is_mute: Callable[[], bool],
    observer: Observer,
    meter: Meter,
    clock: Clock,
) -> RoundsRoom:
    """The parts that agree on rounds."""
    crowd = make_crowd(config, cohort, peers, clock)
    asker = Asker(carriers.rpc, config.rounds, blame=crowd.misbehaved)
    downloader = make_downloader(
        carriers, cohort, crowd, folder=home.folder.incoming_path, clock=clock
    )
    # The driver, which wants payloads and is woken, is made from the intake: bound late.
    room: list[RoundDriver] = []
    intake = Intake(
        cohort,
        crowd,
        want=lambda contribution, holder: room[0].want(contribution, holder),
        wake=lambda: room[0].wake(),
        tell=lambda amendment: gossip.spread(amendment),
        max_archive_bytes=ARCHIVE_BYTES,
    )
    gossip = make_gossip(carriers, intake, crowd, clock=clock)
    holdings = Holdings(intake, asker, crowd=crowd, replica=replica, log=home.held, clock=clock)
    thrift = Thrift(meter, config.rounds)
    voice = make_voice(home, cohort, gossip, thrift, is_mute=is_mute)
    driver = RoundDriver(
        RoundParts(
            intake=intake,
            crowd=crowd,
            replica=replica,
            holdings=holdings,
            committer=Committer(replica, holdings, intake=intake, crowd=crowd),
            inquirer=Inquirer(downloader, asker, crowd=crowd, replica=replica),
            voice=voice,
            resuming=Resuming(intake, crowd=crowd, holdings=holdings, replica=replica, voice=voice),
            thrift=thrift,
        ),
        is_voting=is_voting,
        observer=observer,
        cfg=config.rounds,
        clock=clock,
    )
    room.append(driver)
    RoundsServer(carriers.rpc, intake)
    uplink = MeteredUplink(meter)
    donor = StateDonor(carriers.rpc, replica.states, config.rounds, clock=clock, uplink=uplink)
    listen_s = min(config.heartbeat.interval_s, LISTEN_S)
    joiner = Joiner(downloader, crowd, clock=clock, listen_s=listen_s)
    return RoundsRoom(crowd, intake, gossip, driver, joiner, downloader, donor, thrift)
