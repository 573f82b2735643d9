"""`neuroswarm bench join`: how long until a newcomer contributes."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report


def join(
    *,
    json_path: JsonPath = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One small case, in less than a minute.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="Cases whose name begins so, like 1M or 100M.", show_default=False
        ),
    ] = None,
) -> int:
    """Let a newcomer with a slow link join three nodes that train, and kill a donor meanwhile.

    All that the newcomer is told passes through one bucket of the given bandwidth. Measured are
    the state's transfer over what the link allows, the bytes fetched over the state's, the time
    until it takes part, and the rounds of the others.

    100M parameters need 21 GB of memory for the four processes, and 20 GB of disk; with less,
    only their transfer is measured. All cases take half an hour.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm bench join --json join.json

      neuroswarm bench join --only 10M

      neuroswarm bench join --quick
    """
    from neuroswarm.bench.join_bench import FULL, QUICK, run_cases
    from neuroswarm.errors import ConfigError

    require_file(json_path)
    cases = QUICK if quick else FULL
    chosen = [case for case in cases if case.name.startswith(only or "")]
    if not chosen:
        raise ConfigError(f"--only {only}: no such case (of {', '.join(c.name for c in cases)})")
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    report = run_cases(chosen, environment, typer.echo)
    write_report(json_path, report)
    return conclude(report)
