"""`neuroswarm bench checkpoint`: what checkpoints cost on this machine."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.options import read_path
from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report

FULL_PARAMS, QUICK_PARAMS = "100M", "1M"
CYCLES, QUICK_CYCLES = 4, 3
_FACTORS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)", re.IGNORECASE)


def checkpoint(
    *,
    params: Annotated[
        str | None,
        typer.Option(
            help=f"Parameters, like 10M. Default: {FULL_PARAMS}; {QUICK_PARAMS} if quick.",
            show_default=False,
        ),
    ] = None,
    json_path: JsonPath = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small model, in seconds; stalls are not judged.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Disk to measure. Default: that of temporary files.",
            show_default=False,
            parser=read_path,
            metavar="PATH",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Processor threads for training.")] = 4,
) -> int:
    """Train a plain model, save it as a node does, and compare with plain copies and writes.

    The longest pause between two inner steps for a snapshot is compared with that for a plain
    copy of the same bytes, the bytes on the disk with those expected. Takes some 50 bytes of
    memory and 60 of disk for each parameter.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm bench checkpoint --json checkpoint.json

      neuroswarm bench checkpoint --params 10M --dir /mnt/usb

      neuroswarm bench checkpoint --quick
    """
    from rich.console import Console

    from neuroswarm.bench.checkpoint_bench import Setup, run_checkpoint_bench
    from neuroswarm.bench.checkpoint_report import make_rows
    from neuroswarm.bench.tables import make_table
    from neuroswarm.errors import ConfigError

    require_file(json_path)
    num_params = parse_params(params or (QUICK_PARAMS if quick else FULL_PARAMS))
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--dir {folder}: no such folder")
    with tempfile.TemporaryDirectory(prefix="neuroswarm-bench-", dir=folder) as place:
        cycles = QUICK_CYCLES if quick else CYCLES
        setup = Setup(num_params, cycles, Path(place), num_threads=threads)
        report = run_checkpoint_bench(setup, typer.echo)
    write_report(json_path, report)
    Console().print(make_table(make_rows(report)))
    return conclude(report)


def parse_params(text: str) -> int:
    """A number of parameters like `100M`; ConfigError if it is none or below 1000."""
    from neuroswarm.errors import ConfigError

    match = _SIZE.fullmatch(text.strip())
    number = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if number < 1000:
        raise ConfigError(f"--params {text}: a number from 1K on, like 10M")
    return number
