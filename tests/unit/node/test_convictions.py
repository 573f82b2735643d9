"""Proofs are kept for newcomers and restarts; what does not hold is left out."""

from __future__ import annotations

import pytest

from neuroswarm.node.convictions import MAX_PROOF_BYTES, MAX_PROOFS, Convictions, read_proofs
from neuroswarm.rounds.statements import Proof, check_proof
from neuroswarm.testing.speaker import Speaker


def proof(name: str = "mallory", num_ids: int = 1) -> Proof:
    liar = Speaker(name)
    ids = [number.to_bytes(32, "big") for number in range(1, num_ids + 1)]
    return check_proof(liar.ballot(), liar.ballot(ids))


def kept(*proofs: Proof) -> Convictions:
    convictions = Convictions()
    for each in proofs:
        convictions.add(each)
    return convictions


def test_proofs_outlive_a_restart():
    found = [proof("mallory"), proof("eve")]
    assert read_proofs(kept(*found).to_json()) == found


def test_one_proof_a_signer_is_enough_and_the_oldest_makes_room():
    first = proof(num_ids=1)
    assert list(kept(first, proof(num_ids=2))) == [first]
    many = [proof(f"liar {n}") for n in range(MAX_PROOFS + 1)]
    assert list(kept(*many)) == many[1:]


def test_huge_proofs_are_not_kept():
    assert list(kept(proof(num_ids=MAX_PROOF_BYTES // 32 + 1))) == []


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", 7, None])
def test_what_is_no_proof_is_left_out(text: object):
    good = kept(proof()).to_json()
    assert read_proofs([text, *good]) == [proof()]


def test_a_forged_proof_convicts_nobody():
    liar, victim = Speaker("liar"), Speaker("victim")
    forged = Proof(victim.ballot(), liar.ballot([b"i" * 32]))
    assert read_proofs(kept(forged).to_json()) == []
