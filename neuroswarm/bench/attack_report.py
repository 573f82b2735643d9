"""What the attack benchmark found, as JSON values, and which of its promises hold.

Pure functions of results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neuroswarm.bench.jobs import Result
from neuroswarm.bench.matrix import (
    DEFAULT,
    MEAN,
    NO_ATTACK,
    NUM_PEERS,
    SCREENING,
    SPARSE,
    WHOLE_NODES,
    Job,
)
from neuroswarm.bench.promise import Promise

REPORT_VERSION = 1
MAX_WORST_RATIO = 1.08
MAX_CLEAN_COST = 0.01
MAX_SPARSE_RATIO = 1.03
DIVERGED_RATIO = 1.5
MIN_EQUAL_SHARE = 0.95
"""Of rounds that take all honest nodes to one digest at once. An attack may split some; lineages
heal them, and every run ends with equal digests or fails."""


def summarise(results: Iterable[Result[Job]]) -> dict[str, Any]:
    """Everything that was measured, by name; what was not measured is None.

    Ratios are losses of the attacked run over those of the run of the same rules and seed in
    which the attackers are absent; infinite where the attacked run broke.

    Args:
        results: In any order.
    """
    results = list(results)
    table = _make_table(results)
    worst = _worst([row for row in table if row["rules"] in (DEFAULT, WHOLE_NODES)])
    sparse = _worst([row for row in table if row["rules"] == SPARSE])
    mean_rows = [row for row in table if row["rules"] == MEAN]
    diverged = [row["attack"] for row in mean_rows if row["diverged"]]
    costs = _costs(results)
    return {
        "version": REPORT_VERSION,
        "default_worst_ratio": worst and worst["ratio"],
        "default_worst_attack": worst and worst["attack"],
        "default_worst_ratio_by_seed": _worst_by_seed(table, (DEFAULT, WHOLE_NODES)),
        "default_clean_cost": _mean(costs.values()),
        "default_clean_cost_by_seed": costs,
        "mean_diverges": bool(diverged) if mean_rows else None,
        "mean_diverges_under": diverged,
        "sparse_worst_ratio": sparse and sparse["ratio"],
        "sparse_worst_attack": sparse and sparse["attack"],
        "honest_rejected": _rejections(results),
        "digests_equal": _digests_equal(results),
        "table": table,
        "clean": _clean_rows(results),
        "num_params": max((r.details.get("num_params", 0) for r in results), default=0),
    }


def check_promises(report: Mapping[str, Any]) -> list[Promise]:
    """What was promised of everything that was measured, and whether it holds.

    Args:
        report: From `summarise`.
    """
    promises: list[Promise | None] = [
        _at_most(report, "default_worst_ratio", MAX_WORST_RATIO, report["default_worst_attack"]),
        _at_most(report, "default_clean_cost", MAX_CLEAN_COST),
        _at_most(report, "sparse_worst_ratio", MAX_SPARSE_RATIO, report["sparse_worst_attack"]),
    ]
    if report["mean_diverges"] is not None:
        under = ", ".join(report["mean_diverges_under"]) or "no attack"
        said = f"the plain mean diverges under {under} (expected: at least one)"
        promises.append(Promise("mean_diverges", report["mean_diverges"], said))
    for steps, share in report["honest_rejected"].items():
        said = f"{share:.2%} of honest contributions left out at H {steps} (promised: none)"
        promises.append(Promise(f"honest_rejected at H {steps}", share == 0, said))
    if report["digests_equal"] is not None:
        share = report["digests_equal"]
        promised = f"promised: {MIN_EQUAL_SHARE:.0%}"
        said = f"honest nodes were equal at once after {share:.1%} of rounds ({promised})"
        promises.append(Promise("digests_equal", share >= MIN_EQUAL_SHARE, said))
    return [promise for promise in promises if promise is not None]


def _make_table(results: Sequence[Result[Job]]) -> list[dict[str, Any]]:
    """One row for each pair of rules and attack, in the order of the results' names."""
    clean = {_key(r): r.loss for r in results if r.job.attack == NO_ATTACK}
    found: dict[tuple[str, str], list[Result[Job]]] = {}
    for result in results:
        if result.job.attack != NO_ATTACK and _key(result) in clean:
            found.setdefault((result.job.arm, result.job.attack), []).append(result)
    return [_make_row(sorted(group, key=lambda r: r.job.seed), clean) for group in found.values()]


def _key(result: Result[Job]) -> tuple[str, int, int, int]:
    """Attacked runs are compared with the run without attack that has the same."""
    job = result.job
    return job.arm, job.seed, job.num_honest, job.task.inner_steps


def _make_row(
    group: Sequence[Result[Job]], clean: Mapping[tuple[str, int, int, int], float]
) -> dict[str, Any]:
    job = group[0].job
    ratios = {r.job.seed: r.loss / clean[_key(r)] for r in group}
    row: dict[str, Any] = {
        "rules": job.arm,
        "attack": job.attack,
        "codec": job.rules.codec,
        "method": job.rules.aggregation_method,
        "ratio": _mean(ratios.values()),
        "ratio_by_seed": ratios,
        "loss": _mean([r.loss for r in group]),
        "loss_absent": _mean([clean[_key(r)] for r in group]),
        "diverged": any(is_diverged(ratio) for ratio in ratios.values()),
    }
    if job.is_gossip:
        for name in ("rounds", "rounds_equal", "repairs", "hostile_agreed", "faults_fired"):
            row[name] = sum(r.details[name] for r in group)
        row["is_banned"] = all(r.details["is_banned"] for r in group)
        return row
    row["hostile_rejected"] = _share(group, "hostile_rejected", "hostile")
    row["honest_rejected"] = _share(group, "honest_rejected", "honest")
    return row


def is_diverged(ratio: float) -> bool:
    """Whether a run counts as diverged: half as much loss again, or none that is a number."""
    return not math.isfinite(ratio) or ratio > DIVERGED_RATIO


def _worst(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return max(rows, key=lambda row: row["ratio"], default=None)


def _worst_by_seed(table: Sequence[Mapping[str, Any]], arms: tuple[str, ...]) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in table:
        if row["rules"] in arms:
            for seed, ratio in row["ratio_by_seed"].items():
                found[seed] = max(ratio, found.get(seed, 0.0))
    return found


def _costs(results: Iterable[Result[Job]]) -> dict[int, float]:
    """By seed: how much more loss the default has than the mean, all peers honest; a share."""
    losses = {
        (r.job.arm, r.job.seed): r.loss
        for r in results
        if r.job.attack == NO_ATTACK and r.job.num_honest == NUM_PEERS
    }
    return {
        seed: loss / losses[MEAN, seed] - 1
        for (arm, seed), loss in losses.items()
        if arm == DEFAULT and (MEAN, seed) in losses
    }


def _rejections(results: Iterable[Result[Job]]) -> dict[int, float]:
    """By inner steps of a round: share of contributions left out where all are honest."""
    counts: dict[int, list[int]] = {}
    for result in results:
        job = result.job
        if job.arm in (DEFAULT, SCREENING) and job.attack == NO_ATTACK:
            count = counts.setdefault(job.task.inner_steps, [0, 0])
            count[0] += result.details["honest_rejected"]
            count[1] += result.details["honest"]
    return {steps: rejected / max(1, total) for steps, (rejected, total) in sorted(counts.items())}


def _digests_equal(results: Iterable[Result[Job]]) -> float | None:
    runs = [r.details for r in results if r.job.is_gossip]
    rounds = sum(details["rounds"] for details in runs)
    return sum(details["rounds_equal"] for details in runs) / rounds if rounds else None


def _clean_rows(results: Iterable[Result[Job]]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    for result in sorted(results, key=lambda r: r.job.seed):
        job = result.job
        if job.attack == NO_ATTACK:
            key = (job.arm, job.num_honest, job.task.inner_steps)
            row = rows.setdefault(
                key,
                {"rules": job.arm, "peers": job.num_honest, "inner_steps": job.task.inner_steps,
                 "loss_by_seed": {}},
            )  # fmt: skip
            row["loss_by_seed"][job.seed] = result.loss
    for row in rows.values():
        row["loss"] = _mean(row["loss_by_seed"].values())
    return list(rows.values())


def _share(group: Iterable[Result[Job]], part: str, whole: str) -> float:
    group = list(group)
    total = sum(r.details[whole] for r in group)
    return sum(r.details[part] for r in group) / total if total else 0.0


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _at_most(
    report: Mapping[str, Any], name: str, limit: float, attack: str | None = None
) -> Promise | None:
    value = report[name]
    if value is None:
        return None
    under = f" under {attack}" if attack else ""
    return Promise(name, value <= limit, f"{name} {value:.4f}{under} (promised: {limit:g})")
