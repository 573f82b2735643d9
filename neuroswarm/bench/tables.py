"""The findings of the attack benchmark as tables: for terminals and for Markdown pages.

Works on the report's values, so that a table can be made from a JSON file later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

NOT_A_NUMBER = "broke"


def attack_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Heading, then one row an attack: its ratio under each set of rules; empty where none."""
    table = [row for row in report["table"] if "rounds_equal" not in row]
    arms = list(dict.fromkeys(row["rules"] for row in table))
    attacks = list(dict.fromkeys(row["attack"] for row in table))
    cells = {(row["attack"], row["rules"]): _ratio(row["ratio"]) for row in table}
    clean = {row["rules"]: row["loss"] for row in reversed(report["clean"])}
    rows = [["attack", *arms]]
    rows += [[attack, *(cells.get((attack, arm), "") for arm in arms)] for attack in attacks]
    absent = {row["rules"]: row["loss_absent"] for row in table}
    rows.append(["loss, attackers absent", *(_loss(absent.get(a, clean.get(a))) for a in arms)])
    return rows


def gossip_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Heading, then one row for each attack on the agreement; empty without any."""
    table = [row for row in report["table"] if "rounds_equal" in row]
    if not table:
        return []
    rows = [
        ["attack", "loss ratio", "rounds with equal digests", "repairs", "banned", "hostile agreed"]
    ]
    for row in table:
        equal = f"{row['rounds_equal']} of {row['rounds']}"
        banned = "yes" if row["is_banned"] else "no"
        counts = [str(row["repairs"]), banned, str(row["hostile_agreed"])]
        cells = [row["attack"], _ratio(row["ratio"]), equal, *counts]
        rows.append(cells)
    return rows


def fact_lines(report: Mapping[str, Any]) -> list[str]:
    """The other findings, one a line."""
    lines = [
        _fact("worst ratio with the defaults", report["default_worst_ratio"],
              report["default_worst_attack"]),
        _fact("worst ratio with the sparse codec", report["sparse_worst_ratio"],
              report["sparse_worst_attack"]),
    ]  # fmt: skip
    if report["default_clean_cost"] is not None:
        lines.append(f"cost of the defaults without attack: {report['default_clean_cost']:+.2%}")
    if report["mean_diverges"] is not None:
        under = ", ".join(report["mean_diverges_under"]) or "nothing"
        lines.append(f"the plain mean diverges under: {under}")
    for steps, share in report["honest_rejected"].items():
        lines.append(f"honest contributions left out at H {steps}: {share:.2%}")
    return [line for line in lines if line]


def make_table(rows: Sequence[Sequence[str]]) -> Table:
    """Rows as a table for a terminal; the first is the heading."""
    table = Table()
    for index, title in enumerate(rows[0]):
        table.add_column(title, justify="left" if index == 0 else "right")
    for row in rows[1:]:
        table.add_row(*row)
    return table


def make_markdown(report: Mapping[str, Any]) -> str:
    """Tables and findings as Markdown, with what they were measured on."""
    task, versions = report["task"], report["versions"]
    seeds = ", ".join(map(str, report["seeds"]))
    head = (
        f"{report['num_params']} parameters, 8 peers of which 2 attack, {task['rounds']} rounds of "
        f"{task['inner_steps']} inner steps, seeds {seeds}; neuroswarm {versions['neuroswarm']}, "
        f"torch {versions['torch']}, {report['runtime_s'] / 60:.0f} minutes."
    )
    parts = [head, report["left_out"], markdown_table(attack_rows(report))]
    gossip = gossip_rows(report)
    parts.append(markdown_table(gossip) if gossip else "")
    parts.append("\n".join(f"- {line}" for line in fact_lines(report)))
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """Rows as a table of a Markdown page; the first is the heading."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = lines[0].count("|") - 1
    lines.insert(1, "|---|" + "---:|" * (columns - 1))
    return "\n".join(lines)


def _fact(name: str, ratio: float | None, attack: str | None) -> str:
    return "" if attack is None else f"{name}: {_ratio(ratio)} ({attack})"


def _ratio(value: float | None) -> str:
    """Reports read from JSON have None for what is not finite."""
    if value is None or value == float("inf"):
        return NOT_A_NUMBER
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
