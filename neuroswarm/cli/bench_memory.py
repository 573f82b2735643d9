"""`neuroswarm bench memory`: how many bytes a parameter a node takes."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report


def memory(
    *,
    json_path: JsonPath = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small model and few rounds, in some minutes.")
    ] = False,
    params: Annotated[
        int | None,
        typer.Option(min=1_000_000, help="Parameters of the model.", show_default=False),
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Let the nodes write checkpoints too.")
    ] = False,
) -> int:
    """Let two nodes train one model as processes, and watch their memory.

    Given are bytes a parameter beyond what a node with a tiny model takes, at rest (between the
    ends of rounds) and at the peak, over the 24 of the model, its gradient, two moments and the
    outer state. Only memory that the system cannot take back counts; Linux only.

    With checkpoints, a copy of 12 bytes a parameter comes on top while one is written.

    Ends with 70 if what was promised does not hold. A quick run promises nothing, nor does one
    with checkpoints.

    Examples:
      neuroswarm bench memory --json memory.json

      neuroswarm bench memory --quick
    """
    from neuroswarm.bench.memory_bench import FULL, QUICK, run_memory_bench

    require_file(json_path)
    setup = (QUICK if quick else FULL).with_params(params)
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    report = run_memory_bench(
        setup.with_checkpoints() if checkpoints else setup, environment, typer.echo
    )
    write_report(json_path, report)
    return conclude(report)
