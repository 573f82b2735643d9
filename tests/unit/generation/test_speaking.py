"""Models go on with a text: the same for the same seed, in whichever way they do it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neuroswarm.cli.main import run
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.corpus.tokenizer import ByteTokenizer
from neuroswarm.errors import ComputeError
from neuroswarm.generation.sampling import Sampling, choose
from neuroswarm.generation.speaker import Speaker, speak_in_windows, speak_recurrently
from neuroswarm.generation.text_stream import TextStream
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.workload import Workload
from neuroswarm.testing.state_on_disk import write_state
from neuroswarm.testing.tiny_gpt2 import write_gpt2, write_words
from neuroswarm.testing.tiny_workload import tiny_text

PROMPT = list(b"the swarm ")


def hear(speak: Speaker, prompt: Sequence[int], sampling: Sampling) -> list[int]:
    said: list[int] = []
    speak(prompt, sampling, said.append)
    return said


def test_the_likeliest_token_is_drawn_most_and_none_below_the_k_likeliest():
    logits = torch.tensor([0.0, 3.0, 1.0, 2.0])
    generator = torch.Generator().manual_seed(0)
    sampling = Sampling(temperature=1.0, top_k=2)
    draws = torch.tensor([choose(logits, sampling, generator) for _ in range(2000)])
    counts = torch.bincount(draws, minlength=4)
    assert counts[0] == counts[2] == 0
    expected = torch.softmax(torch.tensor([3.0, 2.0]), 0)[0]
    assert abs(counts[1] / 2000 - expected) < 0.05
    assert choose(logits, Sampling(temperature=0), generator) == 1
    everything = {choose(logits, Sampling(temperature=9.0, top_k=0), generator) for _ in range(200)}
    assert everything == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": 0}, {"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="out of range"):
        Sampling(**wrong)


def test_rwkv_says_from_its_state_what_it_would_say_of_the_whole_text():
    model = Rwkv7(Rwkv7Config(dim=32, num_layers=2, head_size=16), seed=1).eval()
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))  # else all are alike
    sampling = Sampling(max_tokens=12, temperature=0)
    recurrent = hear(speak_recurrently(model), PROMPT, sampling)
    assert recurrent == hear(speak_in_windows(model, 1000), PROMPT, sampling)
    assert len(set(recurrent)) > 1
    drawn = Sampling(max_tokens=12, temperature=1.0, seed=3)
    assert hear(speak_recurrently(model), PROMPT, drawn) == hear(
        speak_recurrently(model), PROMPT, drawn
    )


def test_a_transformer_speaks_beyond_its_context():
    model = Transformer(TransformerConfig(dim=16, num_layers=1, num_heads=2, context=8)).eval()
    said = hear(speak_in_windows(model, 8), PROMPT, Sampling(max_tokens=20, seed=1))
    assert len(said) == 20
    again = hear(speak_in_windows(model, 8), PROMPT[-8:], Sampling(max_tokens=20, seed=1))
    assert said == again  # only the last eight were read
    assert said != hear(speak_in_windows(model, 8), PROMPT, Sampling(max_tokens=20, seed=2))


def test_a_model_without_logits_cannot_be_asked():
    flat = nn.Sequential(nn.Embedding(256, 3), nn.Flatten())
    with pytest.raises(ComputeError, match=r"Sequential returned \(1, 24\) .*needs logits"):
        hear(speak_in_windows(flat, 8), PROMPT, Sampling())


def test_characters_are_shown_whole():
    shown: list[str] = []
    stream = TextStream(ByteTokenizer(), shown.append)
    for token in "aä€b".encode():
        stream.put(token)
    stream.end()
    assert shown == ["a", "ä", "€", "b"]


def test_what_is_no_character_is_shown_in_the_end():
    shown: list[str] = []
    stream = TextStream(ByteTokenizer(), shown.append)
    for token in (0xFF, 0x61, 0xE2, 0x82):
        stream.put(token)
    stream.end()
    assert "".join(shown) == "\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["transformer", "rwkv7", "hf"])
def test_the_command_says_the_same_of_a_state_and_of_its_exports(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    gpt2 = write_gpt2(tmp_path / "gpt2", vocab_size=8, width=16, num_layers=1)
    write_words(gpt2)
    (tmp_path / "text").write_text("the swarm trains on and on " * 300)
    shape = {"dim": 16, "num_layers": 1, "num_heads": 2, "context": 16}
    training = {**shape, "model": f"hf:{gpt2}" if name == "hf" else name}
    config = SwarmNodeConfig(training=training)
    write_state(tmp_path / "node", Workload(data=tmp_path / "text"), config)
    said = []
    folders = [tmp_path / "node", tmp_path / "hf"]
    assert run(["export", str(folders[0]), "--format", "hf", "--to", str(folders[1])]) == 0
    if name != "hf":
        folders.append(tmp_path / "plain")
        assert run(["export", str(folders[0]), "--to", str(folders[2])]) == 0
    capsys.readouterr()
    for folder in (*folders, folders[0]):
        command = ["generate", str(folder), "--prompt", "the swarm", "--max-tokens", "9"]
        assert run([*command, "--seed", "7"]) == 0
        said.append(capsys.readouterr().out)
    assert len(set(said)) == 1
    assert said[0].startswith("the swarm")
    assert len(said[0]) > len("the swarm\n")
    assert run([*command, "--seed", "8"]) == 0
    assert capsys.readouterr().out != said[0]


def test_what_cannot_speak_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["generate", str(tmp_path), "--prompt", "x"]) == 78
    assert "nothing to speak in" in capsys.readouterr().err
    folder = write_gpt2(tmp_path / "gpt2", width=16, num_layers=1)
    assert run(["generate", str(folder), "--prompt", "x"]) == 78
    assert "give --tokenizer" in capsys.readouterr().err
    command = ["generate", str(folder), "--prompt", "x", "--tokenizer", "bytes"]
    assert run([*command, "--max-tokens", "3"]) == 0
    assert run(["generate", str(folder), "--tokenizer", "bytes", "--prompt", ""]) == 78
    assert "no token of it" in capsys.readouterr().err


def test_an_exported_folder_does_not_choose_the_code_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "makes_tiny.py").write_text(
        "from pathlib import Path\n"
        "from neuroswarm.testing.tiny_workload import TinyModel\n"
        "def make(seed):\n"
        "    Path('was_called').touch()\n"
        "    return TinyModel(seed)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    training = {"model": "makes_tiny:make", "context": 16}
    write_state(tmp_path / "node", Workload(data=tiny_text()), SwarmNodeConfig(training=training))
    assert run(["export", str(tmp_path / "node"), "--to", str(tmp_path / "out")]) == 0
    (tmp_path / "was_called").unlink()
    command = ["generate", str(tmp_path / "out"), "--prompt", "\x01", "--tokenizer", "bytes"]
    assert run(command) == 78
    assert "if you trust what this imports here, give --model makes_tiny:make" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "was_called").exists()
    assert run([*command, "--max-tokens", "2", "--model", "makes_tiny:make"]) == 0
    assert (tmp_path / "was_called").exists()
