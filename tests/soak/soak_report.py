"""The figures of a soak run, and whether memory and loss went as they should.

Knows what was noted; refuses to know how it came about.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from soak_judge import Slope, compare_losses, fit_slope, share_equal_at_once
from soak_peers import Life, SoakFailed, SoakPeer
from soak_script import Kind, Plan
from soak_swarm import SoakSwarm
from soak_troubles import Troubles

LEAST_S = 20 * 60.0
"""Seconds that a life is measured at least, after its warm-up, for its slope to be judged."""
NUM_JUDGED = 2
"""Lives that must be judged in a run of the full length."""
FULL_MINUTES = 45.0


def warm_up_s(plan: Plan) -> float:
    """Seconds of a life that are left out."""
    return max(180.0, 6.0 * plan.minutes) if plan.is_long else 20.0


def find_slopes(plan: Plan, swarm: SoakSwarm) -> list[Slope]:
    """How the memory of every process went that lived long enough to tell."""
    least_s = LEAST_S if plan.is_long else float("inf")
    slopes = [
        fit_slope(peer.name, life.number, life.memory, warm_up_s=warm_up_s(plan), least_s=least_s)
        for peer in swarm.peers
        for life in peer.lives
        if life.memory
    ]
    return [slope for slope in slopes if slope is not None]


def find_losses(plan: Plan, swarm: SoakSwarm, began: float, ended: float) -> dict[str, float]:
    """First and last held-out losses: means of tenths, or of a short run's first and last round."""
    points = sorted((s.time, s.loss) for p in swarm.peers for s in p.steps if s.loss is not None)
    if not points:
        return {}
    if plan.is_long:
        tenths = compare_losses(points, began, ended)
        return {} if tenths is None else {"loss_first": tenths[0], "loss_last": tenths[1]}
    return {"loss_first": points[0][1], "loss_last": points[-1][1]}


def judge_end(plan: Plan, figures: Mapping[str, Any]) -> None:
    """SoakFailed if the loss did not fall or memory grew."""
    if "loss_first" not in figures:
        raise SoakFailed("no held-out loss is known for the beginning and the end")
    if figures["loss_last"] >= figures["loss_first"]:
        raise SoakFailed(
            f"the loss did not fall: {figures['loss_first']:.3f} to {figures['loss_last']:.3f}"
        )
    judged = [slope for slope in figures["memory"] if slope["is_judged"]]
    for slope in judged:
        if slope["is_too_steep"]:
            raise SoakFailed(
                f"{slope['node']} (life {slope['life']}) grows by {slope['mb_per_hour']:.1f} MB "
                f"an hour, from {slope['first_mb']:.0f} to {slope['last_mb']:.0f} MB"
            )
    if plan.minutes >= FULL_MINUTES and len(judged) < NUM_JUDGED:
        raise SoakFailed(f"only {len(judged)} lives were long enough to judge their memory")


def make_figures(
    plan: Plan, swarm: SoakSwarm, troubles: Troubles, began: float, ended: float
) -> dict[str, Any]:
    """All figures, as JSON values."""
    struck = troubles.figures(began)
    heals = [s for s in struck if s["one_lineage_after_s"] is not None]
    faults: Counter[str] = sum((life.faults for p in swarm.peers for life in p.lives), Counter())
    minutes = max(ended - began, 1.0) / 60
    rounds = len({s.round for p in swarm.peers for s in p.steps if s.time >= began})
    return {
        "seed": plan.seed,
        "minutes": round(minutes, 2),
        "nodes": plan.num_nodes,
        "rounds_committed": rounds,
        "rounds_per_minute": round(rounds / minutes, 2),
        "repairs": sum(s.is_repair for p in swarm.peers for s in p.steps),
        "downloads": sum(s.is_download for p in swarm.peers for s in p.steps),
        **_equality(swarm, troubles, began),
        **find_losses(plan, swarm, began, ended),
        "longest_time_without_commit_s": round(swarm.longest_gap_s, 1),
        "joins": _joins(swarm, began, is_new=True),
        "returns": _joins(swarm, began, is_new=False),
        "heals_of_partitions": [s for s in heals if s["kind"] == Kind.PARTITION.value],
        "recovery_s": _spread([s["one_lineage_after_s"] for s in heals]),
        "recovery_rounds": _spread([s["one_lineage_after_rounds"] for s in heals]),
        "times_struck": dict(troubles.counts),
        "not_begun": troubles.num_waiting,
        "troubles": struck,
        "faults": dict(faults),
        "memory": [
            {**asdict(slope), "is_too_steep": slope.is_too_steep}
            for slope in find_slopes(plan, swarm)
        ],
        "memory_warm_up_s": warm_up_s(plan),
        "lag": _lags(swarm),
        "cores_used_by_nodes": round(_cores_used(swarm), 2),
    }


def _equality(swarm: SoakSwarm, troubles: Troubles, began: float) -> dict[str, Any]:
    steps = {peer.name: [s for s in peer.steps if s.time >= began] for peer in swarm.peers}
    spans = [
        (struck.began_at, struck.one_at if struck.one_at is not None else float("inf"))
        for struck in troubles.struck
    ]
    is_calm: dict[int, bool] = {}
    for made in steps.values():
        for step in made:
            is_disturbed = any(start <= step.time <= end for start, end in spans)
            is_calm[step.round] = is_calm.get(step.round, True) and not is_disturbed
    share, num_rounds = share_equal_at_once(steps)
    calm_share, num_calm = share_equal_at_once(steps, is_calm)
    return {
        "equal_at_once": round(share, 4),
        "rounds_compared": num_rounds,
        "equal_at_once_in_calm": round(calm_share, 4),
        "rounds_compared_in_calm": num_calm,
    }


def _joins(swarm: SoakSwarm, began: float, *, is_new: bool) -> dict[str, Any]:
    lives = [
        life
        for peer in swarm.peers
        for life in peer.lives
        if life.is_new == is_new and life.started_at >= began
    ]
    return {
        "count": len(lives),
        "ready_after_s": _spread([_since(life, life.ready_at) for life in lives]),
        "contributed_after_s": _spread([_since(life, life.contributed_at) for life in lives]),
    }


def _since(life: Life, at: float | None) -> float | None:
    return None if at is None else at - life.started_at


def _spread(values: list[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {
        "count": len(known),
        "median": round(statistics.median(known), 1),
        "longest": round(max(known), 1),
    }


def _lags(swarm: SoakSwarm) -> dict[str, float]:
    """How late the nodes' event loops ran, seconds."""
    lags = [lag for peer in swarm.peers for life in peer.lives for lag in life.lags]
    if not lags:
        return {}
    means, longest = zip(*lags, strict=True)
    return {
        "mean_s": round(statistics.fmean(means), 4),
        "longest_s": round(max(longest), 2),
        "reports_above_0.5_s": round(sum(lag > 0.5 for lag in longest) / len(longest), 4),
    }


def _cores_used(swarm: SoakSwarm) -> float:
    """By all nodes together while they are up, starts left out."""
    lives = [life.cpu for p in swarm.peers for life in p.lives if len(life.cpu) > 1]
    wall = sum(end - start for (start, _), (end, _) in lives)
    used = sum(last - first for (_, first), (_, last) in lives)
    return len(swarm.peers) * used / wall if wall else 0.0


def last_loss(peers: list[SoakPeer]) -> float | None:
    """The newest held-out loss anywhere, nats."""
    points = [(s.time, s.loss) for p in peers for s in p.steps[-3:] if s.loss is not None]
    return max(points)[1] if points else None


def lines(figures: Mapping[str, Any]) -> list[str]:
    """The table, a line each."""
    made = []
    for name, value in figures.items():
        if name == "troubles":
            continue
        if name in ("memory", "heals_of_partitions"):
            made += [f"{name:<32} {', '.join(_pairs(entry))}" for entry in value]
        elif isinstance(value, dict):
            made.append(f"{name:<32} {', '.join(_pairs(value))}")
        else:
            made.append(f"{name:<32} {_text(value)}")
    return made


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} {_text(value)}" for name, value in values.items()]


def _text(value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(_pairs(value))})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
