"""A contribution before it is signed.

Knows no keys and no rounds in progress.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from neuroswarm.codecs.payload import Payload
from neuroswarm.diloco.state import OuterState
from neuroswarm.training.trained_model import Progress
from neuroswarm.wire.messages import Contribution, FragmentPayload


@dataclass(frozen=True, eq=False)
class Draft:
    """A contribution that is coded but not signed yet."""

    deltas: tuple[Tensor, ...]
    payloads: tuple[Payload, ...]
    parts: tuple[FragmentPayload, ...]
    data: bytes
    """Coded bytes of all fragments in order."""
    progress: Progress
    """Steps, tokens and mean loss since the last publication."""

    def header(self, swarm_id: bytes, state: OuterState) -> Contribution:
        """What is signed of it, as a contribution to the round on `state`."""
        return Contribution(
            swarm_id=swarm_id,
            round=state.round,
            base_digest=state.digest,
            architecture=state.architecture,
            codec=state.rules.codec,
            inner_steps=self.progress.steps,
            tokens=self.progress.tokens,
            loss=self.progress.mean_loss,
            fragments=self.parts,
        )
