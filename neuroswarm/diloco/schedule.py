"""How long a round is and how far the outer step goes.

Knows the rules and counts; refuses to know tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.config.pace import scale_inner_steps
from neuroswarm.diloco.rules import Rules

SHARED_MOMENTUM = 0.5
"""Most momentum with `auto_scale`, where peers may skip rounds."""


@dataclass(frozen=True)
class OuterHyperparameters:
    """Learning rate and Nesterov momentum of one outer step."""

    lr: float
    momentum: float


def get_inner_steps(rules: Rules, num_peers: int) -> int:
    """Inner steps of a round (H) for a swarm of that size.

    `inner_steps * (1 + log10(peers) / 3)`, clamped to the rules' range; `inner_steps` itself
    for one peer or with `auto_scale` off. Only the pace of a peer, never part of the digest.
    """
    if not rules.auto_scale:
        return rules.inner_steps
    return scale_inner_steps(
        rules.inner_steps, rules.inner_steps_min, rules.inner_steps_max, num_peers
    )


def outer_hyperparameters(rules: Rules, num_contributions: int) -> OuterHyperparameters:
    """Outer rate and momentum for an agreed set of that size; a pure function of both.

    With `auto_scale` off: exactly the rules' values. With it on: rate 1.0 and the smaller of
    the rules' momentum and 0.5; a set of one is applied as it is (rate 1.0, no momentum).

    Evidence (byte model of 0.37M parameters, 4 peers, 800 steps, held-out loss): rate 1.0 with
    momentum 0.5 gives 1.601 at H = 27 and 1.656 at H = 100, rate 0.7 with momentum 0.8 gives
    1.648 and 1.721; momentum 0.9 at H = 10 gives 1.929 where 0.5 gives 1.672. A set of one:
    1.966 with momentum 0.8, 1.935 plain.
    """
    if not rules.auto_scale:
        return OuterHyperparameters(rules.outer_lr, rules.outer_momentum)
    if num_contributions <= 1:
        return OuterHyperparameters(1.0, 0.0)
    return OuterHyperparameters(1.0, min(rules.outer_momentum, SHARED_MOMENTUM))
