"""Whether a contribution claims more work than its signer's own heartbeats allow.

Refuses to know what follows. A claim above the bound is evidence and no proof: peers heard
different heartbeats and judge differently, so it may cost a peer its standing
(`Offence.IMPLAUSIBLE_CLAIM`), never a contribution its place in the agreed set.
"""

from __future__ import annotations

from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.messages import Contribution

SLACK = 8.0
"""How much faster than its heartbeat says a peer may be: the rate there is the mean of its life,
which a slow first step or another program on the machine holds down for a while."""

MARGIN_S = 30.0
"""Seconds added to every span: heartbeats get lost, and describe the node before they are sent."""

MAX_TOKENS_PER_S = 1e9
"""Rate allowed to a peer whose heartbeat names none yet; above what one node can do."""


def find_excess(
    claim: Contribution, heartbeat: Heartbeat, *, elapsed_s: float, heartbeat_age_s: float
) -> str | None:
    """Say in words what is too much in a claim; None if nothing is.

    Three bounds: a step reads at least one token; the tokens fit into the time since the peer's
    last contribution; and the steps beyond those that a heartbeat of the same round told of fit
    into the time since that heartbeat.

    Args:
        claim: Header of a verified contribution.
        heartbeat: Newest verified record of the same signer.
        elapsed_s: Seconds since that peer's last known contribution, or since this node began to
            know of it; >= 0.
        heartbeat_age_s: Seconds since the heartbeat came; >= 0.
    """
    steps, tokens = claim.inner_steps, claim.tokens
    if tokens < steps or (tokens and not steps):
        return f"{tokens} tokens in {steps} inner steps"
    rate = heartbeat.tokens_per_s if heartbeat.tokens_per_s > 0 else MAX_TOKENS_PER_S
    if tokens > _allowed(rate, elapsed_s):
        return f"{tokens} tokens in {elapsed_s:.1f} s, its heartbeats say {rate:.4g} a second"
    new_steps = steps - heartbeat.inner_steps
    if heartbeat.round != claim.round or new_steps <= 0:
        return None
    if tokens / steps * new_steps > _allowed(rate, heartbeat_age_s):
        return f"{new_steps} inner steps in {heartbeat_age_s:.1f} s since its heartbeat"
    return None


def _allowed(rate: float, duration_s: float) -> float:
    """Tokens that a peer of this rate (tokens a second) may claim for a span."""
    return SLACK * rate * (duration_s + MARGIN_S)
