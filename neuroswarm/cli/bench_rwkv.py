"""`neuroswarm bench rwkv`: how fast the built-in RWKV-7 trains on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report


def rwkv(
    *,
    json_path: JsonPath = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short sequences, in seconds; nothing is promised.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="Processor threads.")] = 1,
) -> int:
    """Train an RWKV-7 in chunks and, in turns, with loops over time, and compare.

    All are inner steps of the same model as a node takes them, on sequences of 512 tokens. Given
    are tokens a second, by the median step of each, and ratios: over the loop as the formula is
    written, of which something is promised, and over a leaner one without its matrices.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm bench rwkv --json rwkv.json

      neuroswarm bench rwkv --quick
    """
    from neuroswarm.bench.rwkv_bench import Setup, run_rwkv_bench

    require_file(json_path)
    setup = Setup(
        dim=128,
        num_layers=2 if quick else 4,
        batch_size=1,
        length=128 if quick else 512,
        turns=2 if quick else 7,
        chunk_steps=4,
        num_threads=threads,
        is_judged=not quick,
    )
    report = run_rwkv_bench(setup, typer.echo)
    write_report(json_path, report)
    return conclude(report)
