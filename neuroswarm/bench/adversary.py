"""Attackers at work in a run: they see what the honest peers publish, then publish themselves.

Knows the attacks by name and the outer step that they try them on; refuses to know training.

Legend: P honest peers, A attackers, N flattened parameters of the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroswarm.aggregation.preparation import MAX_RELATIVE_NORM
from neuroswarm.bench import attacks
from neuroswarm.codecs.registry import codec_of
from neuroswarm.diloco.outer import WEIGHT_CAP, AgreedContribution, advance, outer_step
from neuroswarm.diloco.schedule import outer_hyperparameters
from neuroswarm.diloco.state import OuterState
from neuroswarm.values import NodeId

SHORT_FACTOR = 0.5
"""Of plain IPM."""
NOISE_NORM = 9.0
"""Gaussian noise is this many times as long as honest contributions: under the threshold of 10."""
VICTIM = 0
"""The honest peer that is copied."""

IPM_FACTORS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.0, 3.0, 5.0, 9.0)
ALIE_DEVIATIONS = (-6.0, -3.0, -2.0, -1.5, -1.0, -0.5, -0.2, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0)
HIDING_ANGLES = (0.0, 0.4, 0.7, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)
"""Tried first by the attackers that optimise."""


@dataclass(frozen=True, eq=False)
class View:
    """What the attackers see in a round.

    Args:
        honest_PN: What the honest contributions decode to, float32.
        num_attackers: A.
        generator: Where chance comes from.
        reach: Where a vector [N], published by all of them, makes the outer parameters end, [N],
            relative to where the mean of the honest contributions would lead them.
    """

    honest_PN: Tensor
    num_attackers: int
    generator: torch.Generator
    reach: Callable[[Tensor], Tensor]

    def distance(self, vector_N: Tensor) -> float:
        """How far a vector drives the outer parameters away."""
        return float(self.reach(vector_N).norm())

    def setback(self, vector_N: Tensor) -> float:
        """How far a vector holds the outer parameters back along the honest mean."""
        return float(self.reach(vector_N).dot(self.honest_PN.mean(dim=0)))


Craft = Callable[[View], Tensor]
"""What the attackers publish: [N] for all of them alike, or [A, N]."""


def _alie(view: View) -> Tensor:
    num_peers = len(view.honest_PN) + view.num_attackers
    deviations = attacks.alie_deviations(num_peers, view.num_attackers)
    return attacks.alie(view.honest_PN, deviations)


def _optimised_alie(view: View) -> Tensor:
    def gain(deviations: float) -> float:
        return view.distance(attacks.alie(view.honest_PN, deviations))

    return attacks.alie(view.honest_PN, attacks.search_factor(gain, ALIE_DEVIATIONS))


def _optimised_ipm(view: View) -> Tensor:
    def gain(factor: float) -> float:
        return view.setback(attacks.ipm(view.honest_PN, factor))

    return attacks.ipm(view.honest_PN, attacks.search_factor(gain, IPM_FACTORS))


def _hidden_ipm(view: View) -> Tensor:
    cover_N = torch.randn(view.honest_PN.shape[1], generator=view.generator)
    lengths = view.honest_PN.norm(dim=1)
    length = MAX_RELATIVE_NORM * float(lengths.median())

    def hide(angle: float) -> Tensor:
        return attacks.hidden_ipm(view.honest_PN, angle, length, cover_N)

    return hide(attacks.search_factor(lambda angle: view.setback(hide(angle)), HIDING_ANGLES))


CRAFTS: dict[str, Craft] = {
    "sign flip": lambda view: attacks.sign_flip(view.honest_PN),
    "scaling x100": lambda view: attacks.scaling(view.honest_PN, 100.0),
    "ALIE": _alie,
    "IPM": lambda view: attacks.ipm(view.honest_PN, SHORT_FACTOR),
    "Gaussian noise": lambda view: attacks.gaussian(
        view.honest_PN, view.num_attackers, NOISE_NORM, view.generator
    ),
    "mimic": lambda view: attacks.mimic(view.honest_PN, VICTIM),
    "optimised ALIE": _optimised_alie,
    "optimised IPM": _optimised_ipm,
    "hidden IPM": _hidden_ipm,
}
"""Attacks that need no training of their own."""


class Adversary:
    """Speaks for all attackers that do not train. They claim as many tokens as are believed."""

    def __init__(self, craft: Craft, node_ids: Sequence[NodeId], seed: int) -> None:
        self._craft = craft
        self._node_ids = tuple(node_ids)
        self._generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def contribute(
        self, state: OuterState, honest: Sequence[AgreedContribution]
    ) -> list[AgreedContribution]:
        """What the attackers publish in answer to the honest contributions of a round."""
        rows = [torch.cat([p.decode() for p in c.payloads]) for c in honest]
        honest_PN = torch.stack(rows)
        aim = _lead(state, honest_PN.mean(dim=0), len(honest) + len(self._node_ids))

        def reach(vector_N: Tensor) -> Tensor:
            hostile = self._publish(state, vector_N, honest)
            return torch.cat(advance(state, [*hostile, *honest]).state.params) - aim

        view = View(honest_PN, len(self._node_ids), self._generator, reach)
        return self._publish(state, self._craft(view), honest)

    def _publish(
        self, state: OuterState, crafted: Tensor, honest: Sequence[AgreedContribution]
    ) -> list[AgreedContribution]:
        rows = crafted if crafted.ndim == 2 else crafted.expand(len(self._node_ids), -1)
        codec = codec_of(state.rules)
        sizes = [fragment.num_params for fragment in state.fragments]
        steps = max(c.inner_steps for c in honest)
        tokens = WEIGHT_CAP * max(c.tokens for c in honest)
        return [
            AgreedContribution(
                node_id,
                bytes(12) + node_id,
                steps,
                tokens,
                tuple(codec.encode(part) for part in torch.split(row, sizes)),
            )
            for node_id, row in zip(self._node_ids, rows, strict=True)
        ]


def _lead(state: OuterState, delta_N: Tensor, num_contributions: int) -> Tensor:
    """Outer parameters [N] after a step along a pseudo-gradient."""
    step = outer_hyperparameters(state.rules, num_contributions)
    parts = torch.split(delta_N, [fragment.num_params for fragment in state.fragments])
    moved = [
        outer_step(fragment, part, step).params
        for fragment, part in zip(state.fragments, parts, strict=True)
    ]
    return torch.cat(moved)
