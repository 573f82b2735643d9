"""`neuroswarm export`: what a swarm has trained, as files that other programs read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.options import read_path


class Form(StrEnum):
    """Names of the forms, known without loading them; a test holds them against the table."""

    SAFETENSORS = "safetensors"
    HF = "hf"
    PEFT = "peft"


def export(
    source: Annotated[
        Path,
        typer.Argument(
            help="A node's --state-dir, its folder of checkpoints, or one outer-*.safetensors.",
            parser=read_path,
            metavar="STATE_DIR",
        ),
    ],
    to: Annotated[Path, typer.Option(help="Folder to make.", parser=read_path, metavar="DIR")],
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="safetensors: tensors under the model's own names. hf: the layout of Hugging "
            "Face, which from_pretrained reads. peft: adapters (LoRA) alone, as PeftModel reads "
            "them.",
        ),
    ] = Form.SAFETENSORS,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add adapters (LoRA) into their base: a whole model.")
    ] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            help="Where the adapters' base is, if not where the node had it.",
            parser=read_path,
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of the same names in a folder in use.")
    ] = False,
) -> None:
    """Write the newest state that a swarm agreed on, with a model card.

    Only reads the node's folder: the node may run meanwhile. Hashes are verified.

    Examples:
      neuroswarm export ~/.local/state/neuroswarm/default/node --to out

      neuroswarm export state --format hf --to out

      neuroswarm export state --format peft --to adapter
    """
    from neuroswarm.cli.logs import configure_logging
    from neuroswarm.export.exporting import export as write

    configure_logging("warning", "plain")
    found = write(source, form.value, to, replaces=force, merges=merge, base=base)
    typer.echo(
        f"wrote round {found.state.round}, state {found.state.digest.hex()[:8]}, "
        f"{found.state.num_params:,} parameters, to {to}"
    )
