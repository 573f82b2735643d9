"""A whole node on one event loop: starts its parts, joins or founds a swarm, stops them.

Knows the order of things; each part knows the thing itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from neuroswarm.clock import Clock, LivedClock, SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.diloco.known_answer import verify_arithmetic
from neuroswarm.diloco.state import OuterState
from neuroswarm.discovery.host_names import Lookup, NameLookup
from neuroswarm.errors import LifecycleError
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.address_quota import choose_quota
from neuroswarm.metering.meter import Meter
from neuroswarm.node.about_model import AboutModel
from neuroswarm.node.absence import Absence
from neuroswarm.node.assembly import (
    Membership,
    assemble_membership,
    assemble_rounds,
    make_cohort,
)
from neuroswarm.node.carriers import MakeCarriers, NetworkCarriers
from neuroswarm.node.convictions import read_proofs
from neuroswarm.node.front import make_web
from neuroswarm.node.home import Home, open_home
from neuroswarm.node.keeping import make_checkpointer, save_before_leaving
from neuroswarm.node.metered_carriers import MeteredCarriers
from neuroswarm.node.metering import watch_traffic
from neuroswarm.node.newcomer import Newcomer
from neuroswarm.node.outfit import make_fitting, outfit
from neuroswarm.node.parts import Parts
from neuroswarm.node.recorder import Recorder, Sinks
from neuroswarm.node.replica import Replica, Tamper
from neuroswarm.node.reporting import Reporter
from neuroswarm.node.restoring import restore_history, take_up
from neuroswarm.node.shard_room import assemble_shards
from neuroswarm.node.shelving import Shelving
from neuroswarm.node.solo import Solo
from neuroswarm.node.statistics import Statistics
from neuroswarm.node.vigil import Vigil, longest_pause_s
from neuroswarm.node.workload import Workload, describe_differences, make_genesis, make_rules
from neuroswarm.rounds.history import History
from neuroswarm.service import Service, State
from neuroswarm.values import Endpoint, short

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node stands on; the defaults are the real ones."""

    make_carriers: MakeCarriers = NetworkCarriers
    clock: Clock = field(default_factory=SystemClock)
    hints: tuple[Endpoint, ...] = ()
    """Heartbeat endpoints to greet, besides the trackers' answers."""
    lookup: Lookup = field(default_factory=NameLookup)
    """Finds the addresses of hints' names."""
    tamper: Tamper | None = None
    """Makes the node hostile: what it publishes instead. Demos and attack benchmarks set it."""


class NodeCore(Service):
    """One node; `start` returns once it holds an outer state and takes part in rounds."""

    name = "node"

    def __init__(
        self,
        config: SwarmNodeConfig,
        token: SwarmToken,
        workload: Workload,
        surroundings: Surroundings | None = None,
    ) -> None:
        super().__init__()
        self.config = config.for_model(is_handed_over=workload.model is not None)
        self._tokens = TokenRing(token)
        self._workload = workload
        self._around = surroundings or Surroundings()
        self._clock = self._live()
        self._parts: Parts | None = None
        self._about_model: AboutModel | None = None
        self._vigil: Vigil | None = None
        self.is_training = False
        """Whether this node takes inner steps for rounds."""
        self._newcomer = Newcomer()

    @property
    def parts(self) -> Parts | None:
        """The parts; None before `start` has made them."""
        return self._parts

    @property
    def is_voting(self) -> bool:
        """Whether it publishes, closes and confirms now."""
        return self.is_voter and self.vigil.may_speak()

    @property
    def is_voter(self) -> bool:
        """Whether peers are to wait for it, although it may only listen for a moment."""
        if not self.is_training or self._parts is None or not self._parts.replica.can_train:
            return False
        if self._parts.fitting.reason:
            return False
        is_expelled = self._parts.home.key.node_id in self._parts.replica.state.rules.expelled_ids
        is_elsewhere = self._parts.meter.is_silent or self._parts.compute.is_stalled
        if is_expelled or is_elsewhere:
            return False
        round_ = self._parts.replica.state.round
        return not self._newcomer.follows(round_, self._parts.rounds.crowd)

    @property
    def vigil(self) -> Vigil:
        """Watches over this node's life; once `start` has made the parts."""
        assert self._vigil is not None, "made with the parts"
        return self._vigil

    @property
    def tokens(self) -> TokenRing:
        """The swarm token in use and those accepted; the latter once `start` has read them."""
        return self._tokens

    @property
    def is_open(self) -> bool:
        """Whether anybody may enter the swarm, for want of a token."""
        return self._tokens.is_open

    def now(self) -> float:
        """Seconds of the node's monotonic clock."""
        return self._clock.monotonic()

    def _live(self) -> LivedClock:
        pause_s = longest_pause_s(self.config.heartbeat.interval_s)
        return LivedClock(self._around.clock, longest_pause_s=pause_s)

    def begin_training(self) -> None:
        """Take part in rounds from now on."""
        if not self.is_training:
            self.is_training = True
            self.require_parts().membership.heartbeat.announce_now()

    def end_training(self) -> None:
        """Contribute no further; peers stop waiting for this node."""
        if self.is_training and self._parts is not None:
            self.is_training = False
            self._parts.compute.pause_training()
            self._parts.membership.heartbeat.announce_now()

    def require_parts(self) -> Parts:
        """The parts; LifecycleError before `start`."""
        if self._parts is None:
            raise LifecycleError("node: not started (use start(), or `async with`)")
        return self._parts

    # -- life ------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        self._tokens = await asyncio.to_thread(
            TokenRing.read, self._tokens.primary, self.config.network.accepted_token_files
        )
        if self.is_open:
            logger.warning(
                "open swarm: no token is set, so anyone can join and read; at most %d peers are "
                "taken from one address (make a token with `neuroswarm token new`)",
                choose_quota(self.config.network.max_peers_per_address, is_open=True),
            )
        self._clock = self._live()  # it has not lived before
        home = await asyncio.to_thread(open_home, self.config, clock=self._around.clock)
        stack.callback(home.close)
        await asyncio.to_thread(verify_arithmetic)
        parts = self._parts = await self._assemble(home)
        stack.callback(self.end_training)
        await stack.enter_async_context(parts.meter)
        await parts.carriers.start()
        stack.push_async_callback(parts.carriers.stop)
        await stack.enter_async_context(parts.devices)
        await stack.enter_async_context(parts.compute)
        await stack.enter_async_context(parts.web)
        await stack.enter_async_context(parts.membership.acquaintance.whereabouts)
        parts.log_address()
        for service in parts.membership.services:
            await stack.enter_async_context(service)
        await stack.enter_async_context(parts.rounds.gossip)
        await stack.enter_async_context(parts.rounds.donor)
        await stack.enter_async_context(parts.shards)
        await stack.enter_async_context(parts.fitting)
        if not parts.trainer.is_hollow:
            await self._take_first_state(parts)
            stack.push_async_callback(parts.checkpointer.save_last)
        for service in parts.in_rounds:
            await stack.enter_async_context(service)
        parts.membership.heartbeat.announce_now()
        if not parts.home.key.is_new:
            self.vigil.listen()
        stack.callback(parts.compute.leave)
        stack.callback(parts.membership.heartbeat.leave)  # first of all: nobody waits for this node

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        parts = self.require_parts()
        finders = parts.membership.services
        services = (
            parts.meter,
            parts.carriers,
            parts.devices,
            parts.compute,
            parts.web,
            parts.membership.acquaintance.whereabouts,
            parts.rounds.gossip,
            parts.rounds.donor,
            parts.shards,
            parts.fitting,
        )
        ends = [part.wait_closed() for part in services]
        ends += [part.wait_closed() for part in (*finders, *parts.in_rounds)]
        return (self.vigil.watch(), *ends)

    async def _take_first_state(self, parts: Parts) -> None:
        cohort = parts.cohort
        kept = await asyncio.to_thread(parts.home.load_latest, cohort.architecture, cohort.base)
        if self._about_model is not None:
            await asyncio.to_thread(self._about_model.keep, parts.home.model_path)
        wait_s = self.config.rounds.genesis_wait_s
        if not (self._around.hints or self.config.dht.seeds):
            wait_s = parts.membership.acquaintance.choose_wait_s(wait_s)
        if kept is not None:
            await take_up(parts.replica, kept, parts.home)
            state = kept.outer
            history = restore_history(kept)
            for proof in read_proofs(kept.meta.get("proofs", [])):
                parts.rounds.intake.on_proof(proof)
            logger.info("resumed at round %d, state %s", state.round, short(state.digest))
            await parts.rounds.joiner.wait_for_peers(wait_s)
        else:
            params = await parts.compute.run(parts.trainer.local)

            def found() -> OuterState:
                parts.home.require_nothing_lost()
                if not parts.rounds.crowd.live():
                    parts.membership.acquaintance.search.require_admission()
                founded = make_genesis(self.config, parts.trainer, params)
                parts.rounds.crowd.versions.require(founded.rules.protocol)
                return founded

            def may_found() -> bool:
                is_deaf = bool(wait_s) and parts.meter.is_silent
                crowd = parts.rounds.crowd
                is_outdated = bool(crowd.apart()) and not crowd.live()
                may_hear_more = parts.membership.finder.may_find_first
                return not (is_deaf or is_outdated or may_hear_more)

            state, is_founder = await parts.rounds.joiner.find_state(
                found, wait_s=wait_s, may_found=may_found
            )
            await parts.replica.adopt(state)
            await parts.rounds.downloader.forget(state.digest)
            if not is_founder:
                self._newcomer.came_into(state.round)
            history = History(state.round, state.digest)
        parts.reporter.tokens_before = parts.trainer.total.tokens
        parts.rounds.intake.history = history
        parts.rounds.crowd.held_out.stand_on(state)
        if kept is None:
            parts.checkpointer.note_outer(state)
        else:
            parts.checkpointer.note_resumed(kept)
            parts.reporter.statistics.durable_round = state.round
        for difference in describe_differences(make_rules(self.config), state.rules):
            logger.warning("the swarm's rules hold, not this node's setting: %s", difference)

    # -- wiring ----------------------------------------------------------------------

    async def _assemble(self, home: Home) -> Parts:
        config, clock = self.config, self._clock
        base = self._around.clock
        compute, prepared, devices = await outfit(config, self._workload, home, base)
        trainer, self._about_model = prepared.trainer, prepared.about
        replica = Replica(
            compute, trainer, home.key.node_id,
            max_retained_states=config.rounds.max_retained_states,
            solo=Solo(trainer, self._around.clock), tamper=self._around.tamper,
        )  # fmt: skip
        cohort = make_cohort(config.network.name, replica)
        meter = Meter(config.metering, home.traffic, self._around.clock)
        make_carriers = self._around.make_carriers
        carriers = MeteredCarriers(make_carriers(home.key, self._tokens, config), meter)
        reporter = Reporter(self, Statistics(home.key.node_id))
        membership = assemble_membership(
            config, carriers, home=home, tokens=self._tokens, describe=reporter.describe,
            hints=self._around.hints, lookup=self._around.lookup, locate=reporter.dht_endpoint,
            clock=clock,
        )  # fmt: skip
        presence, announce = membership.record.presence, membership.heartbeat.announce_now
        self._vigil = Vigil(clock, presence, membership.peers, on_wake=announce)
        recorder = self._make_recorder(home, replica, membership, reporter)
        rounds = assemble_rounds(
            config, carriers, home=home, cohort=cohort, replica=replica, peers=membership.peers,
            is_voting=lambda: self.is_voting, is_mute=lambda: presence.is_lost,
            observer=recorder, meter=meter, clock=clock,
        )  # fmt: skip
        web = make_web(
            config.network, membership, rounds,
            replica=replica, reporter=reporter, sealer=self._tokens.sealer,
            meter=meter, clock=clock,
        )  # fmt: skip
        checkpointer = make_checkpointer(
            home, replica, recorder, reporter, cfg=config.checkpoint, clock=base
        )
        recorder.held_out = rounds.crowd.held_out  # where the peers' figures go
        recorder.put_away = Shelving(home.shelf, replica, rounds.intake).put_away
        save_before_leaving(membership.peers, cohort.swarm_id, checkpointer)
        watch_traffic(meter, carriers, membership, web, clock=clock)
        meter.on_change = Absence(
            membership.heartbeat, self._vigil, self._newcomer,
            listen_s=config.rounds.genesis_wait_s,
            is_stopping=lambda: self.state is State.STOPPING,
        ).on_change  # fmt: skip
        shards = assemble_shards(
            config, carriers, home=home, trainer=trainer, replica=replica, crowd=rounds.crowd,
            announce=announce, recorder=recorder, meter=meter, clock=clock,
        )  # fmt: skip
        fitting = make_fitting(config, compute, trainer, membership, devices=devices, clock=base)
        fitting.peers_step_s = rounds.peers_step_s
        return Parts(
            home, compute, trainer, replica, cohort, carriers, membership, rounds,
            fitting, recorder, reporter, web, checkpointer, meter, shards, devices,
        )  # fmt: skip

    def _make_recorder(
        self, home: Home, replica: Replica, membership: Membership, reporter: Reporter
    ) -> Recorder:
        sinks = Sinks(
            keep_left=home.left_behind.save,
            event_log=home.events,
            announce=membership.heartbeat.announce_now,
            measure=reporter.measure,
        )
        return Recorder(
            replica,
            reporter.statistics,
            sinks,
            eval_batches=self.config.training.eval_batches,
            clock=self._clock,
        )
