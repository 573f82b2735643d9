"""What the convergence benchmark found, as JSON values and tables, and what it promises.

Pure functions of results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neuroswarm.bench.convergence_plan import NUM_PEERS, Job
from neuroswarm.bench.jobs import Result
from neuroswarm.bench.promise import Promise
from neuroswarm.bench.tables import NOT_A_NUMBER, markdown_table
from neuroswarm.demo.measures import allreduce_bytes
from neuroswarm.diloco.schedule import outer_hyperparameters

REPORT_VERSION = 1
NAME = "convergence"

TARGETS = {100: 0.8, 400: 0.6}
"""Share of the gain that is promised where so many times fewer bytes are sent."""

PROMISED_OPTIMIZER = "adamw"
"""Of the references of the promised share: what people would run without a swarm."""

Losses = dict[int, float]
"""By seed."""


def summarise(results: Iterable[Result[Job]]) -> dict[str, Any]:
    """Everything that was measured, by name; what was not measured is None.

    A share of the gain is (alone - swarm) / (alone - synchronous) in held-out loss, of the means
    over the seeds: 0 is training alone, 1 an all-reduce at every step. Its references are the
    best arms of their kind with one inner optimiser.

    Args:
        results: In any order.
    """
    groups: dict[str, list[Result[Job]]] = {}
    for result in results:
        groups.setdefault(result.job.arm, []).append(result)
    rows = [_row(sorted(group, key=lambda r: r.job.seed)) for group in groups.values()]
    references = {
        kind: {name: _best(rows, kind, name) for name in ("adamw", "muon")}
        for kind in ("alone", "synchronous")
    }
    for row in rows:
        row["share_of_gain"] = _share(row, references, PROMISED_OPTIMIZER)
        row["share_of_gain_muon"] = _share(row, references, "muon")
    rows.sort(key=lambda row: (_KINDS.index(row["kind"]), row["bytes_factor"] or 0, row["arm"]))
    report: dict[str, Any] = {"version": REPORT_VERSION, "benchmark": NAME, "table": rows}
    for factor in TARGETS:
        best = _best_share(rows, factor)
        report[f"share_of_gain_{factor}x"] = best and best["share_of_gain"]
        report[f"share_of_gain_{factor}x_arm"] = best and best["arm"]
        report[f"share_of_gain_{factor}x_muon"] = best and best["share_of_gain_muon"]
    report["references"] = {
        kind: {name: found and found["arm"] for name, found in by_name.items()}
        for kind, by_name in references.items()
    }
    return report


def check_promises(report: Mapping[str, Any]) -> list[Promise]:
    """What was promised of everything that was measured, and whether it holds.

    Args:
        report: From `summarise`.
    """
    promises = []
    for factor, target in TARGETS.items():
        share = report[f"share_of_gain_{factor}x"]
        if share is not None:
            said = (
                f"share of the gain at {factor} times fewer bytes: {share:.3f} with "
                f"{report[f'share_of_gain_{factor}x_arm']} (promised: {target:g})"
            )
            promises.append(Promise(f"share_of_gain_{factor}x", share >= target, said))
    rejected = sum(row["rejected"] for row in report["table"])
    said = f"{rejected} contributions of honest peers were left out (promised: none)"
    return [*promises, Promise("honest_rejected", rejected == 0, said)]


def table_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Heading, then one row an arm."""
    rows = [
        ["arm", "inner", "inner rate", "schedule", "H", "codec", "outer rate, momentum",
         "bytes, times fewer", "loss", "by seed", "share of gain", "of Muon's"]
    ]  # fmt: skip
    for row in report["table"]:
        swarm = row["kind"] == "swarm"
        rows.append(
            [
                row["arm"],
                row["inner_optimizer"],
                f"{row['inner_lr']:g}",
                row["schedule"],
                str(row["inner_steps"]) if swarm else "",
                row["codec"] if swarm else "",
                f"{row['outer_lr']:g}, {row['outer_momentum']:g}" if swarm else "",
                "" if row["bytes_factor"] is None else f"{row['bytes_factor']:.0f}",
                _loss(row["loss"]),
                " ".join(map(_loss, row["loss_by_seed"].values())),
                _number(row["share_of_gain"]),
                _number(row["share_of_gain_muon"]),
            ]
        )
    return rows


def make_markdown(report: Mapping[str, Any]) -> str:
    """The table as Markdown, with what it was measured on; the report may be read from JSON."""
    task, versions = report["task"], report["versions"]
    seeds = ", ".join(map(str, report["seeds"]))
    num_params = max(row["num_params"] for row in report["table"])
    head = (
        f"{num_params} parameters, {report['peers']} peers, {report['steps_per_peer']} inner steps "
        f"of {task['batch_size']} x {task['context']} tokens each, seeds {seeds}; "
        f"neuroswarm {versions['neuroswarm']}, torch {versions['torch']}, "
        f"{report['seconds_in_runs'] / 3600:.1f} hours of one core."
    )
    said = [f"- {promise['said']}" for promise in report["promises"]]
    return "\n\n".join([head, markdown_table(table_rows(report)), "\n".join(said)]) + "\n"


_KINDS = ("alone", "synchronous", "swarm")


def _row(group: Sequence[Result[Job]]) -> dict[str, Any]:
    job, details = group[0].job, group[0].details
    rules = job.rules
    losses: Losses = {result.job.seed: result.loss for result in group}
    outer = outer_hyperparameters(rules, NUM_PEERS)
    whole = job.steps * allreduce_bytes(NUM_PEERS, details["num_params"])
    sent = details["bytes_per_peer"]
    return {
        "arm": job.arm,
        "kind": job.kind,
        "inner_optimizer": rules.inner_optimizer,
        "inner_lr": rules.inner_lr,
        "schedule": describe_schedule(job),
        "inner_steps": rules.inner_steps,
        "rounds": len(job.round_lengths),
        "codec": _describe_codec(job),
        "method": rules.aggregation_method,
        "outer_lr": outer.lr,
        "outer_momentum": outer.momentum,
        "num_params": details["num_params"],
        "bytes_per_peer": sent,
        "bytes_factor": whole / sent if sent else None,
        "rejected": sum(result.details.get("rejected", 0) for result in group),
        "loss": sum(losses.values()) / len(losses),
        "loss_by_seed": losses,
        "curve": details["curve"],
    }


def describe_schedule(job: Job) -> str:
    """The learning rate's schedule in a word or two."""
    rules = job.rules
    share = f" {rules.decay_share:g}" if rules.lr_schedule == "wsd" else ""
    floor = "" if rules.lr_schedule == "constant" else f" to {rules.lr_floor:g}"
    return f"{rules.lr_schedule}{share}{floor}"


def _describe_codec(job: Job) -> str:
    rules = job.rules
    if rules.codec == "topk":
        return f"topk {rules.topk_kept} of {rules.topk_chunk}"
    return f"{rules.codec} by {rules.codec_block}"


def _best(rows: Iterable[dict[str, Any]], kind: str, optimizer: str) -> dict[str, Any] | None:
    wanted = [r for r in rows if r["kind"] == kind and r["inner_optimizer"] == optimizer]
    return min(wanted, key=lambda row: row["loss"], default=None)


def _share(
    row: Mapping[str, Any],
    references: Mapping[str, Mapping[str, Mapping[str, Any] | None]],
    optimizer: str,
) -> float | None:
    alone, synchronous = (references[kind][optimizer] for kind in ("alone", "synchronous"))
    if alone is None or synchronous is None or alone["loss"] == synchronous["loss"]:
        return None
    share: float = (alone["loss"] - row["loss"]) / (alone["loss"] - synchronous["loss"])
    return share


def _best_share(rows: Iterable[dict[str, Any]], factor: int) -> dict[str, Any] | None:
    """The swarm that gains most of those that send so many times fewer bytes."""
    wanted = [
        row
        for row in rows
        if row["kind"] == "swarm" and row["bytes_factor"] >= factor
        if row["share_of_gain"] is not None
    ]
    return max(wanted, key=lambda row: row["share_of_gain"], default=None)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _loss(value: float | None) -> str:
    """Reports read from JSON have None for what is not finite."""
    return NOT_A_NUMBER if value is None or math.isinf(value) else f"{value:.3f}"
