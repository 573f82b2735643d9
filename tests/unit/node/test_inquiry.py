"""What an offer to go over to others is worth once this node has gone on."""

from __future__ import annotations

from collections.abc import Sequence

from lone_parts import LoneParts, lone_parts

from neuroswarm.node.inquiry import Download, Fork
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.lineage import Claim, ClaimedRound
from neuroswarm.testing.speaker import Speaker

ALICE, BOB, CARL, DORA = (Speaker(name) for name in ("alice", "bob", "carl", "dora"))
EVERYONE = (ALICE, BOB, CARL, DORA)


def finish(history: History, lineage: str, speakers: Sequence[Speaker] = ()) -> None:
    """One more round, whose outcome some peers confirm."""
    round_, base = history.round, history.digest
    agreed = (lineage.encode().ljust(32, b"-"),)
    confirms = tuple(speaker.about(round_, base).confirm(agreed) for speaker in speakers)
    after = f"{lineage} {round_ + 1}".encode().ljust(32, b"-")
    history.append(FinishedRound(round_, base, after, agreed, confirms))


def make_history(parts: LoneParts, lineages: str, speakers: Sequence[Speaker] = ()) -> History:
    """A lineage from the genesis on; a letter a round."""
    history = History(0, parts.genesis.digest)
    for lineage in lineages:
        finish(history, lineage, speakers)
    return history


def make_offer(parts: LoneParts, lineages: str, fork: int) -> Download:
    """To go where Alice, Bob and Carl stand."""
    for speaker in EVERYONE:
        parts.peers.observe(*speaker.heartbeat(), 0.0, host_seen=None)
    theirs = make_history(parts, lineages, (ALICE, BOB, CARL))
    rounds = tuple(
        ClaimedRound(f.round, f.base_digest, f.next_digest, f.signers, f.set_hash)
        for f in theirs.since(0)
    )
    claim = Claim(theirs.round, theirs.digest, rounds)
    return Download(parts.genesis, ALICE.address, Fork(fork, fork - 1, claim), fork - 1)


async def test_it_stays_good_though_rounds_of_the_losing_lineage_go_on():
    async with lone_parts() as parts:
        offer = make_offer(parts, "bbb", fork=1)
        mine = make_history(parts, "a")
        assert parts.inquirer.keep(offer, mine) is offer
        for _ in range(5):
            finish(mine, "a")
            assert parts.inquirer.keep(offer, mine) is offer


async def test_it_is_void_once_more_peers_confirm_this_nodes_lineage():
    async with lone_parts() as parts:
        offer = make_offer(parts, "bbb", fork=1)
        mine = make_history(parts, "a")
        finish(mine, "a", EVERYONE)
        assert parts.inquirer.keep(offer, mine) is None


async def test_it_is_void_once_this_node_stands_there():
    async with lone_parts() as parts:
        offer = make_offer(parts, "bbb", fork=1)
        assert parts.inquirer.keep(offer, make_history(parts, "bbbb")) is None


async def test_it_is_void_on_a_lineage_that_parts_earlier():
    async with lone_parts() as parts:
        offer = make_offer(parts, "bbb", fork=2)
        assert parts.inquirer.keep(offer, make_history(parts, "aaa")) is None


async def test_along_the_same_lineage_it_is_void_after_any_round():
    async with lone_parts() as parts:
        offer = Download(parts.genesis, ALICE.address, None, 0)
        assert parts.inquirer.keep(offer, make_history(parts, "a")) is None
        assert parts.inquirer.keep(None, make_history(parts, "a")) is None
