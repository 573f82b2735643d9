"""A small vocabulary as Hugging Face `tokenizers` writes it."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["[UNK]", "<|end|>", "the", "swarm", "trains", "on", "and"]


def write_vocabulary(folder: Path, num_words: int = 0) -> Path:
    """A file with `WORDS`, and words w0, w1 ... until it has at least `num_words`."""
    words = [*WORDS, *(f"w{i}" for i in range(num_words - len(WORDS)))]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(words)},
            "unk_token": "[UNK]",
        },
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content))
    return path
