"""What was said before a restart and cannot be taken up any more is lost, and ends nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lone_parts import lone_parts

from neuroswarm.checkpoint.said import Said, SaidLog
from neuroswarm.testing.speaker import Speaker
from neuroswarm.wire.signed import Kind, sign

NO_STATEMENTS = b"\xff"
NAMED = (b"i" * 32,)
OTHER = (b"o" * 32,)

DAMAGED: dict[str, tuple[Kind, Callable[[Speaker], Said]]] = {
    "amendments beside a ballot": (
        Kind.BALLOT,
        lambda me: Said(me.ballot(NAMED), NO_STATEMENTS),
    ),
    "amendments beside a confirm": (
        Kind.CONFIRM,
        lambda me: Said(me.confirm(NAMED), NO_STATEMENTS),
    ),
    "a ballot's body": (Kind.BALLOT, lambda me: Said(sign(Kind.BALLOT, b"\xff", me.key))),
    "a contribution's payload": (
        Kind.CONTRIBUTION,
        lambda me: Said(me.contribution(b"of another architecture"), b"of another architecture"),
    ),
    "a contribution's body": (
        Kind.CONTRIBUTION,
        lambda me: Said(sign(Kind.CONTRIBUTION, b"\xff", me.key), b"of what?"),
    ),
}


@pytest.mark.parametrize(("kind", "make"), DAMAGED.values(), ids=DAMAGED)
async def test_what_cannot_be_taken_up_is_lost_and_not_signed_again(
    tmp_path: Path, kind: Kind, make: Callable[[Speaker], Said], caplog: pytest.LogCaptureFixture
):
    log = SaidLog(tmp_path)
    async with lone_parts(log) as parts:
        log.record(0, parts.genesis.digest, make(parts.me))
        said = await parts.voice.begin(0, parts.genesis.digest)
        parts.resuming.begin(said)
        await parts.resuming.take_up(parts.round, 0.0)
        assert parts.voice.is_lost(kind)
        signed = {
            Kind.CONTRIBUTION: await parts.voice.sign_contribution(parts.me.header(b"x"), b"x"),
            Kind.BALLOT: await parts.voice.say_ballot(OTHER),
            Kind.CONFIRM: await parts.voice.say_confirm(OTHER),
        }
    assert [k for k, found in signed.items() if found is None] == [kind]
    assert kind not in {s.kind for s in parts.spread.signed}
    assert f"lost: {kind.name.lower()}" in caplog.text


async def test_what_is_whole_is_taken_up_beside_what_is_lost(tmp_path: Path):
    log = SaidLog(tmp_path)
    async with lone_parts(log) as parts:
        whole = Said(parts.me.confirm(NAMED))
        log.record(0, parts.genesis.digest, Said(parts.me.ballot(NAMED), NO_STATEMENTS))
        log.record(0, parts.genesis.digest, whole)
        parts.resuming.begin(await parts.voice.begin(0, parts.genesis.digest))
        await parts.resuming.take_up(parts.round, 0.0)
        assert parts.round.confirmers(NAMED) == {parts.me.node_id}
        assert parts.round.ballot_signers == frozenset()
        assert await parts.voice.say_confirm(OTHER) == whole.signed
