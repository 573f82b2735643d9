"""Proof of who answers: for one caller, one nonce, one node."""

from __future__ import annotations

import pytest

from neuroswarm.errors import BadSignature
from neuroswarm.identity.answer_proof import make_nonce, prove_answer, verify_answer
from neuroswarm.identity.node_key import NodeKey

ALICE, BOB, MALLORY = NodeKey.generate(), NodeKey.generate(), NodeKey.generate()


def test_proof_of_the_node_called_is_accepted():
    nonce = make_nonce()
    proof = prove_answer(BOB, ALICE.node_id, nonce)
    verify_answer(proof, ALICE.node_id, nonce, expected=BOB.node_id)


def test_proof_by_another_node_is_refused():
    nonce = make_nonce()
    with pytest.raises(BadSignature, match="another node"):
        verify_answer(
            prove_answer(MALLORY, ALICE.node_id, nonce),
            ALICE.node_id,
            nonce,
            expected=BOB.node_id,
        )


def test_member_in_the_middle_has_nothing_to_pass_on():
    """Mallory calls Bob with Alice's nonce: Bob proves his answer to Mallory, not to Alice."""
    nonce = make_nonce()
    with pytest.raises(BadSignature, match="not signed"):
        verify_answer(
            prove_answer(BOB, MALLORY.node_id, nonce),
            ALICE.node_id,
            nonce,
            expected=BOB.node_id,
        )


def test_old_proof_does_not_serve_again():
    proof = prove_answer(BOB, ALICE.node_id, make_nonce())
    with pytest.raises(BadSignature, match="not signed"):
        verify_answer(proof, ALICE.node_id, make_nonce(), expected=BOB.node_id)


@pytest.mark.parametrize(
    "proof",
    [b"", bytes(95), bytes(96), BOB.public_key + bytes(64)],
    ids=["empty", "short", "zeros", "a key alone"],
)
def test_what_is_no_proof_is_refused(proof: bytes):
    with pytest.raises(BadSignature):
        verify_answer(proof, ALICE.node_id, make_nonce(), expected=BOB.node_id)
