"""Changes of the rules by the swarm's owner: which may follow which, and what they do to a state.

An amendment is signed by the owner's key, which the rules name, and carries all rules, their
revision one above the present. It is agreed by ballots like a contribution, so all honest peers
change their rules at the same round boundary. Refuses to know how amendments travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import BadSignature, ProtocolViolation
from neuroswarm.wire.messages import Amendment, decode_amendment
from neuroswarm.wire.signed import Kind, Signed, Signer, sign


def propose(swarm_id: bytes, rules: Rules, owner: Signer) -> Signed:
    """Sign an amendment that brings these rules.

    Args:
        swarm_id: The swarm that it is for, 32 bytes.
        rules: All of them, their revision one above the swarm's.
        owner: Holder of the key that the swarm's present rules name.
    """
    return sign(Kind.AMENDMENT, Amendment(swarm_id, rules.to_bytes()).encode(), owner)


def read_amendment(signed: Signed, swarm_id: bytes, present: Rules) -> Rules:
    """The rules that a verified amendment brings, if it may follow the present ones.

    Raises:
        BadSignature: It is not signed by the present owner.
        ProtocolViolation: It is for another swarm, or does not follow these rules.
        SchemaMismatch: It or its rules cannot be read.
    """
    if signed.kind is not Kind.AMENDMENT:
        raise ProtocolViolation(f"not an amendment: {signed.kind.name.lower()}")
    if not present.owner:
        raise BadSignature("this swarm has no owner: its rules cannot be changed")
    if signed.public_key.hex() != present.owner:
        raise BadSignature("an amendment that is not signed by the swarm's owner")
    amendment = decode_amendment(signed.body)
    if amendment.swarm_id != swarm_id:
        raise ProtocolViolation("an amendment for another swarm")
    rules = Rules.from_bytes(amendment.rules)
    if rules.revision != present.revision + 1:
        raise ProtocolViolation(
            f"an amendment of revision {rules.revision} (the rules are of {present.revision})"
        )
    return rules


def describe_changes(before: Rules, after: Rules) -> list[str]:
    """What an amendment changes, for people: name, old value, new value."""
    return [
        f"{name} {_show(getattr(before, name))} -> {_show(getattr(after, name))}"
        for name in Rules.model_fields
        if name != "revision" and getattr(before, name) != getattr(after, name)
    ] or ["nothing"]


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(text[:8] for text in value) or "none"
    return str(value)[:16] if value != "" else "none"


def amend(
    state: OuterState, amendments: Iterable[Signed], swarm_id: bytes, base: OuterState
) -> OuterState:
    """The state after a round with the rules that the round agreed on.

    Of several amendments that may follow the rules of `base`, the one with the smallest id
    holds; those that may not change nothing. Exact, like the outer step before it.

    Args:
        state: What the outer step made of `base`.
        amendments: Those of the agreed set, verified.
        swarm_id: The swarm, 32 bytes.
        base: The state that the round started from.
    """
    for signed in sorted(amendments, key=lambda signed: signed.id):
        try:
            return replace(state, rules=read_amendment(signed, swarm_id, base.rules))
        except (BadSignature, ProtocolViolation):
            continue
    return state
