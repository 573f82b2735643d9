"""Whole nodes agree bit for bit, whatever the network does to their messages."""

from __future__ import annotations

from pathlib import Path

from neuroswarm.gossip.push import decode_push
from neuroswarm.rounds.statements import Proof, Statement
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm
from neuroswarm.values import NodeId
from neuroswarm.wire.messages import decode_contribution
from neuroswarm.wire.signed import Kind, Signed

NAMES = ("anna", "bert", "carl", "dora")


async def test_four_nodes_hold_the_same_bits_after_every_round(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        await swarm.found(*NAMES)
        await swarm.until_round(6)
        await swarm.until_level()
        digests = await swarm.digests()
        assert len(digests) >= 5
        assert all(len(found) == 1 for found in digests.values()), digests
        for member in swarm.running:
            assert member.statistics.foreign_contributions_used >= 3
            assert member.statistics.contributions_agreed >= 1


async def test_bits_are_equal_though_a_fifth_of_all_messages_is_lost_and_all_are_late(
    tmp_path: Path,
):
    async with Swarm(tmp_path, seed=1) as swarm:
        faults = [swarm.network.loss(0.2), swarm.network.delay(0.05)]
        await swarm.found(*NAMES)
        await swarm.until_round(5)
        fired = [fault.fired for fault in faults]
        for fault in faults:
            swarm.network.remove(fault)
        await swarm.more_rounds(1)
        await swarm.until_level()
        digests = await swarm.digests()
        assert len(digests) >= 5
        assert all(len(found) == 1 for found in digests.values()), digests
        assert all(m.statistics.foreign_contributions_used > 0 for m in swarm.running)
        assert min(fired) > 100


PATIENT = {"min_grace_s": 15.0, "seal_deadline_s": 30.0, "collect_deadline_s": 30.0}
"""A round that misses a header waits for it longer than its author takes to say it again."""

TRIES = 4 * 3
"""Pushes of one batch that are lost until its author gives up, to three peers."""


async def test_a_header_that_is_lost_to_all_is_said_again(tmp_path: Path):
    async with Swarm(tmp_path, rounds=PATIENT, heartbeat={"interval_s": 1.0}) as swarm:
        anna, *_ = await swarm.found(*NAMES)
        await swarm.until_round(2)
        rounds: set[int] = set()

        def has_header(passage: Passage) -> bool:
            if lost.fired == TRIES:
                return False
            said = [relayed.message for relayed in decode_push(passage.data).messages]
            headers = [message for message in said if message.kind == Kind.CONTRIBUTION]
            rounds.update(decode_contribution(message.body).round for message in headers)
            return bool(headers)

        lost = swarm.network.drop(anna.node_id, None, "Gossip/Push", has_header)
        await swarm.until(lambda: lost.fired == TRIES, what="anna's header to be lost")
        await swarm.more_rounds(1)
        (fork,) = rounds
        for member in swarm.running:
            commits = [event for event in await member.events() if event["event"] == "commit"]
            (agreed,) = [event["signers"] for event in commits if event["round"] == fork + 1]
            assert len(agreed) == len(NAMES)


async def test_a_node_that_decided_another_set_is_repaired(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl, dora = await swarm.found(*NAMES)
        await swarm.until_round(1)
        fork = 1 + max(member.round for member in swarm.running)
        deafness = Deafness(dora, fork, anna)
        silence = swarm.network.drop(
            dora.node_id, None, "Gossip/Result", lambda _passage: dora.round <= fork
        )
        await swarm.until(lambda: dora.statistics.repairs > 0, what="the repair of dora")
        await swarm.more_rounds(1)
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        assert deafness.fired >= 3
        assert silence.fired > 0
        assert [member.statistics.repairs for member in (anna, bert, carl)] == [0, 0, 0]
        repairs = [event for event in await dora.events() if event.get("is_repair")]
        assert repairs
        assert all(event["left_round"] > fork for event in repairs)


class Deafness:
    """One round in which a node hears no confirm, no ballot, and nothing that one peer says."""

    def __init__(self, who: Member, round_: int, unheard: Member) -> None:
        self.fired = 0
        intake = who.parts.rounds.intake
        hear = intake.on_statement

        def hear_some(signed: Signed, statement: Statement, sender: NodeId) -> bool | Proof:
            is_verdict = signed.kind in (Kind.BALLOT, Kind.CONFIRM)
            if statement.round == round_ and (is_verdict or signed.signer == unheard.node_id):
                self.fired += 1
                return False
            return hear(signed, statement, sender)

        intake.on_statement = hear_some  # type: ignore[method-assign]


async def test_halves_of_a_parted_swarm_become_one_lineage_again(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        members = await swarm.found(*NAMES)
        ids = [member.node_id for member in members]
        await swarm.until_round(1)
        cut = swarm.network.partition(ids[:2], ids[2:])
        await swarm.more_rounds(3)
        assert len({member.digest for member in members}) > 1
        swarm.network.heal()
        await swarm.until(lambda: sum(m.statistics.repairs for m in members) >= 2, what="repairs")
        await swarm.more_rounds(2)
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        assert cut.fired > 0


async def test_of_two_geneses_the_smaller_digest_wins(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        (anna,) = await swarm.start("anna", trains=False, model_seed=1)
        apart = swarm.network.drop(method="datagram")
        (bert,) = await swarm.start("bert", trains=False, model_seed=2)
        geneses = [anna.digest, bert.digest]
        assert geneses[0] != geneses[1]
        assert apart.fired > 0
        swarm.network.remove(apart)
        await swarm.until_level()
        assert anna.digest == min(geneses)
        anna.begin_training()
        bert.begin_training()
        await swarm.until_round(2)
        await swarm.until_level()
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def test_an_onlooker_follows_the_voters(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        voters = await swarm.found("anna", "bert", "carl")
        (olga,) = await swarm.start("olga", trains=False)
        await swarm.more_rounds(3)
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        assert olga.statistics.contributions_published == 0
        commits = [event for event in await olga.events() if event["event"] == "commit"]
        signers = {signer for event in commits for signer in event["signers"]}
        assert signers == {voter.node_id.hex() for voter in voters}
