"""The outer step: the one function that turns an outer state and an agreed set into the next.

It reads nothing but its arguments and keeps the exactness law: element-wise IEEE arithmetic in
a fixed order, so that every honest peer gets the same bits.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuroswarm.aggregation import exact
from neuroswarm.aggregation.bucketing import make_buckets, random_order
from neuroswarm.aggregation.rule import aggregate
from neuroswarm.aggregation.screening import screen
from neuroswarm.aggregation.tolerance import Tolerance, bucket_size, choose_rule, max_byzantine
from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.registry import codec_of
from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import OuterHyperparameters, outer_hyperparameters
from neuroswarm.diloco.state import Fragment, FragmentState, OuterState, flush_small
from neuroswarm.hardware import large_tensors
from neuroswarm.values import NodeId

FALLBACK_GROWTH = 4.0
"""In a fallback no contribution is longer than this many norms of the outer momentum."""

WEIGHT_CAP = 4
"""Tokens count up to this many times the set's lower median, since they are only claimed."""


@dataclass(frozen=True, eq=False)
class AgreedContribution:
    """A contribution that the round agreed on; `payloads` has one for each fragment."""

    node_id: NodeId
    id: bytes
    inner_steps: int
    tokens: int
    payloads: tuple[Payload, ...]


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What a round made of its agreed set.

    `used` and `rejected` hold contribution ids, `rejected` with the reason. `method` names the
    rule that was really applied, with its f, for status pages.
    """

    state: OuterState
    used: tuple[bytes, ...]
    rejected: Mapping[bytes, str]
    method: str
    num_byzantine: int


@torch.no_grad()
def advance(state: OuterState, agreed: Sequence[AgreedContribution]) -> RoundOutcome:
    """F: the outer state after a round that agreed on these contributions.

    Screens the set, aggregates fragment by fragment, takes a Nesterov step, and enters the
    whole set (rejected ones too: they count for f) into the table of applied contributions.
    An empty set advances the round and changes nothing else. Of a node that is in the set twice
    neither contribution counts.

    Args:
        state: The outer state that the contributions are based on; is not written.
        agreed: The set, in any order; not written.

    Returns:
        The new state, with new tensors, and what was done.

    Raises:
        ValueError: Payloads do not fit the fragments (checked by whoever received them, so a
            bug here).

    Cost: with P contributions of N parameters O(P^2 N); memory a tensor of the largest
        fragment beyond the result. 0.4M parameters and 8 peers: about 30 ms of one core.

    Threads: any thread that does not train at the same time on the same tensors. It changes no
        global setting of torch and depends on none: the caller need not set thread counts or
        the denormal mode. The caller must not run it under autocast, a default device other
        than the CPU, or a function mode that rewrites torch calls.
    """
    twice = _twice(agreed)
    single = [contribution for contribution in agreed if contribution.node_id not in twice]
    if not single:
        following = replace(state, round=state.round + 1)
        return RoundOutcome(following, (), _name_twice(agreed, twice), "none", 0)
    ordered = sorted(single, key=lambda contribution: contribution.node_id)
    _check(state, ordered)
    grams = _grams(state, ordered)
    tolerance = _tolerance(state, ordered)
    verdicts = screen(
        exact.ordered_sum(grams),
        magnitude_ratio=state.rules.magnitude_ratio_threshold,
        cosine_threshold=state.rules.cosine_threshold,
        max_rejected=tolerance.num_byzantine,
    )
    kept = [i for i, verdict in enumerate(verdicts) if verdict is None]
    survivors = [ordered[i] for i in kept]
    final = _with_fewer(tolerance, len(kept))
    buckets = _draw_buckets(state, survivors, final)
    step = outer_hyperparameters(state.rules, len(ordered))
    fragments = []
    for k, fragment in enumerate(state.fragments):
        delta = _aggregate_fragment(state, k, survivors, final, grams[k][kept][:, kept], buckets)
        fragments.append(outer_step(fragment, delta, step))
    table = applied.add(state.applied, state.round, [(c.node_id, c.id) for c in ordered])
    following = replace(state, round=state.round + 1, fragments=tuple(fragments), applied=table)
    rejected = {c.id: str(v) for c, v in zip(ordered, verdicts, strict=True) if v is not None}
    rejected |= _name_twice(agreed, twice)
    used = tuple(ordered[i].id for i in kept)
    return RoundOutcome(following, used, rejected, str(tolerance), tolerance.num_byzantine)


def _grams(state: OuterState, ordered: Sequence[AgreedContribution]) -> list[Tensor]:
    """Inner products of the contributions, [P, P] for each fragment."""
    return [
        exact.gram([contribution.payloads[k] for contribution in ordered])
        for k in range(len(state.fragments))
    ]


def _with_fewer(tolerance: Tolerance, num_kept: int) -> Tolerance:
    """What holds for the contributions that were not rejected.

    f stays that of the whole set as far as the rule bears it with fewer rows: a rejected
    contribution may have been an honest one.
    """
    borne = max(0, min(tolerance.num_byzantine, max_byzantine(tolerance.method, num_kept)))
    return replace(tolerance, num_byzantine=borne)


def outer_step(fragment: Fragment, delta_N: Tensor, step: OuterHyperparameters) -> FragmentState:
    """One Nesterov step of a fragment along an aggregated pseudo-gradient.

    m' = mu m + g; theta' = theta - lr (g + mu m'), each operation rounded by itself; magnitudes
    below 2^-100 become 0, so that no result depends on the denormal mode.

    Args:
        fragment: Not written.
        delta_N: g, float32, shape [N]; not written.
        step: Learning rate and momentum, rounded to float32.

    Source: Douillard et al. 2023, arXiv:2311.08105, algorithm 1 (outer Nesterov, as torch's
        SGD has it). Differs: flush of small values.
    """
    mu = torch.tensor(step.momentum, dtype=torch.float32)
    lr = torch.tensor(step.lr, dtype=torch.float32)
    before, held = fragment.params, fragment.momentum
    size = before.numel()
    params, momentum = large_tensors.empty(size), large_tensors.empty(size)
    for start in range(0, size, exact.CHUNK_VALUES):
        part = slice(start, start + exact.CHUNK_VALUES)
        delta = delta_N[part]
        following = flush_small((held[part] * mu).add_(delta))
        moved = (following * mu).add_(delta).mul_(lr)
        params[part] = flush_small(torch.sub(before[part], moved, out=moved))
        momentum[part] = following
    return FragmentState(fragment.name, params, momentum)


def token_weights(ordered: Sequence[AgreedContribution]) -> list[float]:
    """Weight of each contribution in the mean: its tokens, capped; equal if nobody has any."""
    tokens = [contribution.tokens for contribution in ordered]
    cap = WEIGHT_CAP * max(sorted(tokens)[(len(tokens) - 1) // 2], 1)
    weights = [float(min(count, cap)) for count in tokens]
    return weights if sum(weights) > 0 else [1.0] * len(tokens)


def _tolerance(state: OuterState, ordered: Sequence[AgreedContribution]) -> Tolerance:
    known = applied.identities(state.applied, state.round)
    known = known.union(contribution.node_id for contribution in ordered)
    return choose_rule(len(ordered), len(known), state.rules)


def _draw_buckets(
    state: OuterState, kept: Sequence[AgreedContribution], tolerance: Tolerance
) -> list[list[int]] | None:
    """Which contributions are averaged before the rule; None for none.

    The draw depends on the state and on the set, so that nobody knows its bucket before all
    contributions are fixed by their ids.
    """
    size = bucket_size(tolerance, len(kept), state.rules)
    if size == 1:
        return None
    seed = state.digest + b"".join(contribution.id for contribution in kept)
    return make_buckets(random_order(len(kept), seed), size)


def _aggregate_fragment(
    state: OuterState,
    index: int,
    kept: Sequence[AgreedContribution],
    tolerance: Tolerance,
    gram_PP: Tensor,
    buckets: list[list[int]] | None,
) -> Tensor:
    """The kept contributions' joint pseudo-gradient of one fragment. float32, shape [N]."""
    rules: Rules = state.rules
    norm_scaling, max_norm = rules.norm_scaling, None
    if tolerance.is_fallback:
        # Clipping to the next norm bounds nothing in sets of one or two.
        norm_scaling = "both" if rules.norm_scaling == "both" else "down"
        length = exact.norm(state.fragments[index].momentum)
        max_norm = FALLBACK_GROWTH * length if length > 0 else None
    return aggregate(
        [contribution.payloads[index] for contribution in kept],
        token_weights(kept),
        method=tolerance.method,
        num_byzantine=tolerance.num_byzantine,
        norm_scaling=norm_scaling,
        use_nnm=rules.use_nnm and not tolerance.is_fallback,
        krum_neighbours=rules.krum_neighbours,
        max_norm=max_norm,
        buckets=buckets,
        gram_PP=gram_PP,
    )


def _twice(agreed: Sequence[AgreedContribution]) -> frozenset[NodeId]:
    """Nodes with two contributions in one set: equivocators whose proof came too late."""
    counts = Counter(contribution.node_id for contribution in agreed)
    return frozenset(node_id for node_id, count in counts.items() if count > 1)


def _name_twice(agreed: Sequence[AgreedContribution], twice: frozenset[NodeId]) -> dict[bytes, str]:
    return {c.id: "two contributions of one node" for c in agreed if c.node_id in twice}


def _check(state: OuterState, ordered: Sequence[AgreedContribution]) -> None:
    codec = codec_of(state.rules)
    for contribution in ordered:
        if len(contribution.payloads) != len(state.fragments):
            raise ValueError(
                f"contribution of {contribution.node_id}: {len(contribution.payloads)} payloads "
                f"(needs {len(state.fragments)})"
            )
        for fragment, payload in zip(state.fragments, contribution.payloads, strict=True):
            if not codec.fits(payload, fragment.num_params):
                raise ValueError(
                    f"contribution of {contribution.node_id}: {payload.kind} payload of "
                    f"{payload.num_params} parameters in blocks of {payload.block} for fragment "
                    f"{fragment.name} of {fragment.num_params}, coded by {codec}"
                )
