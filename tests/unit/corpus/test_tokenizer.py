"""Bytes are their own ids; a vocabulary's ids are those of its file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from words import write_vocabulary

from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer
from neuroswarm.errors import DataError


def test_bytes_are_their_own_ids():
    ids = ByteTokenizer().encode("käse\n".encode())
    assert ids.dtype == torch.uint8
    assert ids.tolist() == list("käse\n".encode())
    assert ByteTokenizer().decode(ids.tolist()) == "käse\n"
    assert ByteTokenizer().encode(b"").tolist() == []


def test_broken_text_is_decoded_with_a_mark():
    assert ByteTokenizer().decode([65, 0xFF]) == "A\N{REPLACEMENT CHARACTER}"


def test_a_vocabulary_gives_the_ids_of_its_file(tmp_path: Path):
    path = write_vocabulary(tmp_path)
    tokenizer = FileTokenizer(path)
    assert tokenizer.encode(b"the swarm trains alone").tolist() == [2, 3, 4, 0]
    assert tokenizer.decode([2, 3, 4]) == "the swarm trains"
    assert tokenizer.find("<|end|>") == 1
    assert tokenizer.name == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("num_words", "dtype"), [(256, torch.uint8), (257, torch.uint16)])
def test_ids_take_the_smallest_dtype(tmp_path: Path, num_words: int, dtype: torch.dtype):
    tokenizer = FileTokenizer(write_vocabulary(tmp_path, num_words))
    assert tokenizer.vocab_size == num_words
    ids = tokenizer.encode(f"w{num_words - 8}".encode())
    assert ids.dtype == dtype
    assert ids.tolist() == [num_words - 1]


def test_what_is_no_vocabulary_is_named(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(DataError, match=r"cannot read the vocabulary .*tokenizer.json: No such"):
        FileTokenizer(path)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer.json is no tokenizer.json: "):
        FileTokenizer(path)


def test_a_vocabulary_that_is_empty_or_does_not_cover_the_text_is_named(tmp_path: Path):
    path = write_vocabulary(tmp_path)
    content = json.loads(path.read_text())
    del content["model"]["vocab"]["[UNK]"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"does not cover the text \(.*\): WordLevel error"):
        FileTokenizer(path).encode(b"the unheard")
    content["model"]["vocab"] = {}
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"has 0 tokens \(1 to"):
        FileTokenizer(path)


def test_tokens_that_are_not_there_are_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"no token '<s>'"):
        FileTokenizer(write_vocabulary(tmp_path)).find("<s>")
    with pytest.raises(DataError, match=r"'ab' is 2 bytes"):
        ByteTokenizer().find("ab")
