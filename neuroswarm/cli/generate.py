"""`neuroswarm generate`: let a trained model continue a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.options import read_path

if TYPE_CHECKING:
    from neuroswarm.corpus.tokenizer import Tokenizer
    from neuroswarm.generation.loading import TextModel
    from neuroswarm.generation.sampling import Sampling


def generate(
    source: Annotated[
        Path,
        typer.Argument(
            help="A node's --state-dir, a folder that `neuroswarm export` made, or one of a "
            "Hugging Face causal model.",
            parser=read_path,
            metavar="FOLDER",
        ),
    ],
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at most.")] = 200,
    temperature: Annotated[
        float,
        typer.Option(min=0, max=1000, help="0: the likeliest token; higher: more surprising."),
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(min=0, help="Choose among the likeliest K only; 0: among all.")
    ] = 40,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The same seed writes the same text.")
    ] = 0,
    model: Annotated[
        str | None,
        typer.Option(
            help="module:factory that made the model of an exported folder, if code of yours did: "
            "none is run because a folder names it.",
            metavar="MODULE:FACTORY",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="`bytes`, or a tokenizer.json, where the folder has none.", show_default=False
        ),
    ] = None,
) -> None:
    """Let a trained model continue a text, and show it as it comes.

    Of a node's folder it takes the newest state that the swarm agreed on; the node may run.

    Examples:
      neuroswarm generate ~/.local/state/neuroswarm/default/node --prompt 'def main('

      neuroswarm generate out --prompt 'Once upon' --max-tokens 50 --temperature 0
    """
    from neuroswarm.cli.logs import configure_logging
    from neuroswarm.generation.loading import load_text_model
    from neuroswarm.generation.sampling import Sampling

    configure_logging("warning", "plain")
    sampling = Sampling(max_tokens, temperature, top_k, seed)
    chosen = None if tokenizer is None else _choose(tokenizer)
    _speak(load_text_model(source, chosen, factory=model or ""), prompt, sampling)


def _speak(speaker: TextModel, prompt: str, sampling: Sampling) -> None:
    from neuroswarm.errors import ConfigError
    from neuroswarm.generation.text_stream import TextStream

    tokens = speaker.tokenizer.encode(prompt.encode()).tolist()
    if not tokens:
        raise ConfigError("--prompt: no token of it (give some text to continue)")
    _show(prompt)
    stream = TextStream(speaker.tokenizer, _show)
    speaker.speak(tokens, sampling, stream.put)
    stream.end()
    _show("\n")


def _choose(tokenizer: str) -> Tokenizer:
    from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer

    return ByteTokenizer() if tokenizer == "bytes" else FileTokenizer(read_path(tokenizer))


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
