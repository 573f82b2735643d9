import logging
from pathlib import Path

import pytest

from neuroswarm.corpus.loading import load_corpus, read_text
from neuroswarm.corpus.preparing import prepare
from neuroswarm.corpus.tokenizer import ByteTokenizer
from neuroswarm.errors import DataError


def text_of(path: Path | None, **options: int) -> bytes:
    return bytes(read_text(path, **options).numpy())


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def test_a_file_is_read_as_it_is(tmp_path: Path):
    data = bytes(range(1, 256))
    assert text_of(write(tmp_path, {"a.txt": data}) / "a.txt") == data


def test_a_folder_is_read_in_order_without_hidden_and_binary_files(tmp_path: Path):
    files = {
        "b.txt": b"2",
        "a.txt": b"1",
        "sub/c.md": b"3",
        "sub/.git/x": b"no",
        ".hidden": b"no",
        "image.png": b"\x89PNG\0no",
    }
    write(tmp_path, files)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    assert text_of(tmp_path) == b"123"


def test_reading_stops_at_the_limit_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write(tmp_path, {"a": b"12345", "b": b"67890", "c": b"xx"})
    assert text_of(tmp_path, max_bytes=12) == b"1234567890xx"
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert text_of(tmp_path, max_bytes=7) == b"1234567"
    assert "first 7 bytes" in caplog.text


def test_the_default_is_the_standard_library():
    corpus = load_corpus(max_bytes=3_000_000)
    assert corpus.source == "the Python standard library"
    text = text_of(None, max_bytes=3_000_000)
    assert corpus.tokens.num_tokens == len(text) > 1_000_000
    assert b"import" in text
    assert bytes(corpus.tokens.windows([1000], 500)[0].tolist()) == text[1000:1500]


def test_a_folder_of_shards_is_opened_and_brings_its_vocabulary(tmp_path: Path):
    (tmp_path / "text").write_bytes(b"0123456789" * 500)
    prepare([tmp_path / "text"], tmp_path / "out", ByteTokenizer())
    corpus = load_corpus(tmp_path / "out", max_bytes=10)
    assert corpus.vocab_size == 256
    assert corpus.tokens.num_tokens == 5000
    batch, _ = corpus.sampler(context=8, batch_size=2, seed=0).train(0)
    assert set(batch.flatten().tolist()) <= set(b"0123456789")


@pytest.mark.parametrize("name", ["missing", "empty", "binary"])
def test_without_text_the_message_says_what_to_give(tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    write(tmp_path, {"binary/x": b"\0\0"})
    with pytest.raises(DataError, match="give a text file"):
        load_corpus(tmp_path / name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"cannot read .*yyy"):
        load_corpus(tmp_path / ("y" * 300))


def test_a_corpus_gives_the_windows_of_a_node(tmp_path: Path):
    corpus = load_corpus(write(tmp_path, {"a": b"0123456789" * 50}) / "a")
    sampler = corpus.sampler(context=8, batch_size=3, seed=1)
    inputs, targets = sampler.train(0)
    assert inputs.shape == (3, 8)
    assert ((targets - inputs) % 10 == 1).all()
    with pytest.raises(DataError, match="500 tokens"):
        corpus.sampler(context=400, batch_size=3, seed=1)
