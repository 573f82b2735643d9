"""`neuroswarm bench speeds`: what peers of unequal speeds achieve together."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report


def speeds(
    *,
    json_path: JsonPath = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for a minute only.")] = False,
) -> int:
    """Let three nodes train as processes at speeds of 1 : 4 : 16, alone and then together.

    They are slowed down by quotas of control groups (root), else by being stopped in turn.
    Nothing is tuned to the speeds. Takes six minutes, and two cores that are not in use.

    Ends with 70 if less than 90 % of the tokens trained were used by the rounds, or if the nodes
    together train on less than 90 % of the tokens a second that they do alone.

    Examples:
      neuroswarm bench speeds --json speeds.json

      neuroswarm bench speeds --quick
    """
    from neuroswarm.bench.speeds_bench import FULL, QUICK, run_speeds_bench

    require_file(json_path)
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    report = run_speeds_bench(QUICK if quick else FULL, environment, typer.echo)
    write_report(json_path, report)
    return conclude(report)
