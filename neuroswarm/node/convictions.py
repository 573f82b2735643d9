"""Proofs against equivocators: kept for newcomers and across restarts, bounded.

Knows which proofs there are; what follows from one is decided in `neuroswarm.node.intake`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence

from neuroswarm.errors import PeerError
from neuroswarm.rounds.statements import Proof, check_proof
from neuroswarm.v1 import gossip_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import verify

logger = logging.getLogger(__name__)

MAX_PROOFS = 64
MAX_PROOF_BYTES = 16 * 1024
"""Longer proofs (of huge ballots) convict, and are not kept."""


class Convictions:
    """The newest proofs, one a signer."""

    def __init__(self) -> None:
        self._proofs: dict[NodeId, Proof] = {}

    def __iter__(self) -> Iterator[Proof]:
        return iter(tuple(self._proofs.values()))

    def add(self, proof: Proof) -> None:
        """Keep a checked proof; the one that was kept first makes room."""
        if len(proof.first.body) + len(proof.second.body) > MAX_PROOF_BYTES:
            return
        self._proofs.setdefault(proof.signer, proof)
        if len(self._proofs) > MAX_PROOFS:
            del self._proofs[next(iter(self._proofs))]

    def to_json(self) -> list[str]:
        """What outlives a restart."""
        return [_to_text(proof) for proof in self._proofs.values()]


def read_proofs(texts: Sequence[object]) -> list[Proof]:
    """The proofs that `to_json` wrote, each checked anew; those that do not hold are left out."""
    found = []
    for text in texts[:MAX_PROOFS]:
        try:
            found.append(_from_text(str(text)))
        except (PeerError, ValueError) as error:
            logger.warning("a proof against an equivocator is forgotten: %s", error)
    return found


def _to_text(proof: Proof) -> str:
    first, second = proof.first.to_proto(), proof.second.to_proto()
    message = gossip_pb2.EquivocationProof(first=first, second=second)
    return base64.b64encode(message.SerializeToString()).decode()


def _from_text(text: str) -> Proof:
    message = parse(gossip_pb2.EquivocationProof, base64.b64decode(text, validate=True))
    return check_proof(verify(message.first), verify(message.second))
