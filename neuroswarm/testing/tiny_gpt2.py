"""A folder with a GPT-2 so small that whole nodes train it in seconds, made without a network.

Needs the library `transformers`.
"""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "tie_word_embeddings": True,
}


WORDS = ("[UNK]", "<|end|>", "the", "swarm", "trains", "on", "and")
"""A vocabulary whose ids are the places here."""


def write_words(folder: Path) -> Path:
    """Write a `tokenizer.json` of `WORDS`, as the library `tokenizers` does; returns the file."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token=WORDS[0])
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def write_gpt2(
    folder: Path,
    *,
    vocab_size: int = 256,
    width: int = 64,
    num_layers: int = 2,
    context: int = 64,
    seed: int | None = None,
) -> Path:
    """Write a model's configuration, and its weights if asked for.

    Args:
        folder: Made if it is missing.
        vocab_size: Tokens it knows.
        width: Of the model; 64 gives some 120,000 parameters.
        num_layers: Blocks.
        context: Longest sequence.
        seed: Of the weights; None writes none, so that they start at random.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = {
        "vocab_size": vocab_size,
        "n_embd": width,
        "n_layer": num_layers,
        "n_head": 2,
        "n_positions": context,
    }
    (folder / "config.json").write_text(json.dumps({**CONFIG, **shape}, indent=1))
    if seed is not None:
        from neuroswarm.models.hugging_face import load_model, open_folder, save

        save(load_model(open_folder(folder), seed=seed), folder)
    return folder
