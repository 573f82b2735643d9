"""A node never signs two different statements of a kind about one round."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from neuroswarm.checkpoint.said import SaidLog
from neuroswarm.diloco.amending import propose
from neuroswarm.diloco.rules import Rules
from neuroswarm.node.voice import Voice, unpack_statements
from neuroswarm.testing.speaker import SWARM, Speaker
from neuroswarm.wire.signed import Kind, Signed

BASE = b"b" * 32
ANNA = Speaker("anna", round_=3, base=BASE)
SAID_ONCE = (Kind.CONTRIBUTION, Kind.BALLOT, Kind.CONFIRM)


@dataclass
class Spread:
    """Everything that was spread."""

    signed: list[Signed] = field(default_factory=list)
    inline: list[bytes | None] = field(default_factory=list)

    def spread(self, signed: Signed, *, inline: bytes | None = None) -> None:
        self.signed.append(signed)
        self.inline.append(inline)


async def speak(folder: Path, payload: bytes, *, speaker: Speaker = ANNA) -> dict[Kind, bytes]:
    """One life of a node in the round: all that it signs and says, by kind."""
    spread = Spread()
    voice = Voice(speaker.key, SWARM, SaidLog(folder), spread)
    said = await voice.begin(3, BASE)
    for before in said.values():
        voice.spread_contribution(before.signed)
    signed = await voice.sign_contribution(speaker.header(payload), payload)
    if signed is not None:
        voice.spread_contribution(signed)
    await voice.say_ballot((payload * 4,))
    await voice.say_confirm((payload * 4,))
    return {signed.kind: signed.body for signed in spread.signed}


def cut(folder: Path, kind: Kind, keep: int) -> None:
    """Damage the file of one statement."""
    (path,) = folder.glob(f"*-{kind.name.lower()}.said")
    path.write_bytes(path.read_bytes()[:keep])


ONE, TWO = b"payload1", b"payload2"


async def test_after_a_restart_it_says_the_same_again(tmp_path: Path):
    first = await speak(tmp_path, ONE)
    assert set(first) == set(SAID_ONCE)
    assert await speak(tmp_path, TWO) == first


@pytest.mark.parametrize("kind", SAID_ONCE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("keep", [0, 20, -1])
async def test_of_what_is_lost_it_says_nothing_in_that_round(
    tmp_path: Path, kind: Kind, keep: int, caplog: pytest.LogCaptureFixture
):
    first = await speak(tmp_path, ONE)
    cut(tmp_path, kind, keep)
    for _ in range(2):
        again = await speak(tmp_path, TWO)
        assert again == {k: body for k, body in first.items() if k is not kind}
    assert f"signed before, and lost: {kind.name.lower()}" in caplog.text


async def test_it_is_told_before_a_contribution_is_made_for_nothing(tmp_path: Path):
    await speak(tmp_path, ONE)
    cut(tmp_path, Kind.CONTRIBUTION, 0)
    voice = Voice(ANNA.key, SWARM, SaidLog(tmp_path), Spread())
    await voice.begin(3, BASE)
    assert voice.is_lost(Kind.CONTRIBUTION)
    assert not voice.is_lost(Kind.BALLOT)
    await voice.begin(4, BASE)
    assert not voice.is_lost(Kind.CONTRIBUTION)


async def test_it_never_speaks_for_the_key_that_the_folder_had_before(tmp_path: Path):
    await speak(tmp_path, ONE)
    bert = Speaker("bert", round_=3, base=BASE)
    spoken = await speak(tmp_path, TWO, speaker=bert)
    assert spoken == await speak(tmp_path / "new", TWO, speaker=bert)


async def test_with_a_folder_that_cannot_be_read_it_signs_nothing(tmp_path: Path):
    log = SaidLog(tmp_path / "said")
    (tmp_path / "said").rmdir()
    voice = Voice(ANNA.key, SWARM, log, Spread())
    assert await voice.begin(3, BASE) == {}
    assert await voice.say_ballot(()) is None


async def test_a_payload_is_spread_only_when_it_is_revealed():
    spread = Spread()
    voice = Voice(ANNA.key, SWARM, None, spread)
    await voice.begin(3, BASE)
    signed = await voice.sign_contribution(ANNA.header(ONE), ONE)
    assert signed is not None
    voice.spread_contribution(signed)
    voice.say_seal()
    voice.repeat(with_payload=True)
    assert set(spread.inline) == {None}
    voice.reveal()
    assert (spread.signed[-1], spread.inline[-1]) == (signed, ONE)
    spread.inline.clear()
    voice.repeat(with_payload=True)
    assert ONE in spread.inline
    assert [s.kind for s in spread.signed].count(Kind.SEAL) == 3, "said, and repeated twice"


async def test_all_that_was_said_is_repeated_to_those_who_missed_it_without_the_payload():
    spread = Spread()
    voice = Voice(ANNA.key, SWARM, None, spread)
    await voice.begin(3, BASE)
    voice.say_ready(20)
    signed = await voice.sign_contribution(ANNA.header(ONE), ONE)
    assert signed is not None
    voice.spread_contribution(signed)
    voice.say_seal()
    voice.reveal()
    await voice.say_ballot((ONE * 4,))
    said = {signed.id for signed in spread.signed}
    spread.signed.clear()
    spread.inline.clear()
    voice.repeat(with_payload=False)
    assert {signed.id for signed in spread.signed} == said
    assert len(said) == 4
    assert spread.inline == [None] * 4
    await voice.begin(4, BASE)
    spread.signed.clear()
    voice.repeat(with_payload=False)
    assert spread.signed == []


async def test_a_new_round_reveals_nothing_of_itself():
    spread = Spread()
    voice = Voice(ANNA.key, SWARM, None, spread)
    await voice.begin(3, BASE)
    voice.reveal()
    await voice.begin(4, BASE)
    header = ANNA.about(4, BASE).header(ONE)
    await voice.sign_contribution(header, ONE)
    voice.repeat(with_payload=True)
    assert spread.inline == [None]


async def test_amendments_that_a_ballot_names_outlive_a_restart(tmp_path: Path):
    owner = Speaker("owner")
    amendment = propose(SWARM, Rules(revision=1), owner.key)
    first = Voice(ANNA.key, SWARM, SaidLog(tmp_path), Spread())
    await first.begin(3, BASE)
    await first.say_ballot((amendment.id,), [amendment])
    await first.say_confirm((amendment.id,), [amendment])
    again = Spread()
    second = Voice(ANNA.key, SWARM, SaidLog(tmp_path), again)
    said = await second.begin(3, BASE)
    for kind in (Kind.BALLOT, Kind.CONFIRM):
        assert unpack_statements(said[kind].payload) == [amendment]
    second.reveal()
    second.repeat(with_payload=True)
    assert again.inline == [None, None], "amendments are no payload"


async def test_a_payload_above_the_bound_of_a_slow_link_is_left_to_be_pulled():
    for bound, wanted in ((len(ONE), ONE), (len(ONE) - 1, None)):
        spread = Spread()
        voice = Voice(ANNA.key, SWARM, None, spread, max_inline_bytes=bound)
        await voice.begin(3, BASE)
        await voice.sign_contribution(ANNA.header(ONE), ONE)
        voice.reveal()
        assert spread.inline == [wanted]
