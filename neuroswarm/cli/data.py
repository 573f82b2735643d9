"""`neuroswarm data`: make, describe, look at and check token shards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import read_path
from neuroswarm.values import counted

if TYPE_CHECKING:
    from neuroswarm.corpus.manifest import Manifest
    from neuroswarm.corpus.preparing import Progress
    from neuroswarm.corpus.shards import ShardFolder
    from neuroswarm.corpus.tokenizer import Tokenizer

app = typer.Typer(help="Make text into token shards, which nodes train on without reading it all.")

Folder = Annotated[
    Path,
    typer.Argument(
        help="Folder that `neuroswarm data prepare` made.", parser=read_path, metavar="FOLDER"
    ),
]


@app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """Make text into token shards, which nodes train on without reading it all."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Text files, and folders of them.", parser=read_path, metavar="SOURCES..."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The folder to make.", parser=read_path, metavar="PATH")
    ],
    tokenizer: Annotated[
        str, typer.Option(help="`bytes`, or the tokenizer.json of a Hugging Face model.")
    ] = "bytes",
    separator: Annotated[
        str | None, typer.Option(help="A token to put after every file, as '<|endoftext|>'.")
    ] = None,
    shard_mb: Annotated[int, typer.Option(min=1, max=1024, help="Length of a shard, MB.")] = 16,
) -> None:
    """Make token shards of texts: `neuroswarm node --data FOLDER` trains on them.

    The same texts make the same shards on every machine. Delete the folder to undo it.
    """
    from neuroswarm.corpus.preparing import prepare as make

    chosen = _choose_tokenizer(tokenizer)
    separator_id = None if separator is None else chosen.find(separator)
    show = _Line()
    try:
        manifest = make(
            sources,
            out,
            chosen,
            separator=separator_id,
            shard_bytes=shard_mb * 1_000_000,
            on_progress=show.update,
        )
    finally:
        show.end()
    if show.progress is not None and show.progress.num_skipped:
        skipped = counted(show.progress.num_skipped, "file")
        typer.echo(f"left out, empty or no text: {skipped}")
    _describe(out, manifest)


@app.command()
def describe(
    folder: Folder,
    to: Annotated[Path, typer.Option(help="The folder to make.", parser=read_path, metavar="PATH")],
) -> None:
    """Make a small folder that says what FOLDER holds, for nodes that fetch its shards from peers.

    It has the manifest, and the vocabulary if there is one. Give it to others like a torrent file:
    `neuroswarm node --data` takes it. Delete it to undo it.
    """
    from neuroswarm.corpus.describing import describe as make

    manifest = make(folder, to)
    shards = counted(len(manifest.shards), "shard")
    typer.echo(f"{to}: describes {manifest.num_tokens:,} tokens in {shards}")
    typer.echo(f"id: {manifest.id[:16]}")


@app.command("show")
def show_(folder: Folder) -> None:
    """Tell what is in a folder of shards, and which of them are here."""
    from neuroswarm.corpus.shards import ShardFolder

    found = ShardFolder(folder)
    _describe(folder, found.manifest)
    _tell_missing(found)


@app.command()
def verify(folder: Folder) -> int:
    """Read all files and hold them against the manifest.

    Exit code 74 if one is damaged, 78 if what is there is not enough to train on without fetching
    more from peers.
    """
    from neuroswarm.corpus.shards import ShardFolder

    found = ShardFolder(folder)
    damaged = list(found.verify())
    for name, why in damaged:
        typer.echo(f"damaged: {folder / name}: {why}", err=True)
    if damaged:
        return ExitCode.IO
    missing = len(found.manifest.shards) - len(found.held)
    typer.echo(
        f"sound: {counted(len(found.held), 'shard')}" + (f", {missing} missing" if missing else "")
    )
    _tell_missing(found)
    found.open_tokens()  # says what is missing for a node to train on it
    return ExitCode.OK


def _tell_missing(found: ShardFolder) -> None:
    """Name the shards that are here and those that are not, if any is not."""
    names = [shard.name for shard in found.manifest.shards]
    held = {shard.name for shard in found.held}
    if len(held) == len(names):
        return
    for what, is_here in (("here", True), ("missing here", False)):
        listed = [name for name in names if (name in held) is is_here]
        typer.echo(f"{what}: {counted(len(listed), 'shard')}{_list(listed)}")
    typer.echo("a node fetches missing ones from its peers (data.fetch)")


def _list(names: list[str]) -> str:
    """Names of shards, those that follow one another as a range."""
    ranges: list[list[str]] = []
    for name in names:
        kind, number = _split_name(name)
        if ranges and _split_name(ranges[-1][-1]) == (kind, number - 1):
            ranges[-1].append(name)
        else:
            ranges.append([name])
    ends = [dict.fromkeys((r[0], r[-1])) for r in ranges]
    shown = [" to ".join(name.removesuffix(".tokens") for name in pair) for pair in ends]
    return f": {', '.join(shown)}" if shown else ""


def _split_name(name: str) -> tuple[str, int]:
    kind, _, number = name.removesuffix(".tokens").rpartition("-")
    return kind, int(number)


def _choose_tokenizer(name: str) -> Tokenizer:
    from neuroswarm.corpus.manifest import BYTES
    from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer

    return ByteTokenizer() if name == BYTES else FileTokenizer(read_path(name))


def _describe(folder: Path, manifest: Manifest) -> None:
    held_out = sum(shard.num_tokens for shard in manifest.shards if shard.is_held_out)
    shards = counted(len(manifest.shards), "shard")
    typer.echo(f"{folder}: {manifest.num_tokens:,} tokens in {shards}")
    typer.echo(f"held out: {held_out:,} tokens")
    typer.echo(f"tokenizer: {manifest.tokenizer[:16]}, {manifest.vocab_size:,} tokens")
    typer.echo(f"id: {manifest.id[:16]}")


class _Line:
    """One line of progress on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def update(self, progress: Progress) -> None:
        self.progress = progress
        if self._is_terminal:
            done = f"{progress.text_bytes / 1e6:.0f} MB, {progress.num_tokens:,} tokens"
            sys.stderr.write(f"\rread {progress.num_files} files, {done}   ")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\n")
