"""What `neuroswarm export` writes, what it refuses, and that it only reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.cli.export import Form
from neuroswarm.cli.main import run
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.export.formats import FORMATS, find_writer
from neuroswarm.export.source import open_source
from neuroswarm.generation.loading import load_text_model
from neuroswarm.node.workload import Workload
from neuroswarm.testing.state_on_disk import write_state
from neuroswarm.testing.tiny_gpt2 import write_gpt2, write_words
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

TEXT = "a text that is long enough " * 200
SMALL: dict[str, Any] = {"dim": 16, "num_layers": 2, "num_heads": 2, "context": 16}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text(TEXT)
    return path


def config(**training: Any) -> SwarmNodeConfig:
    return SwarmNodeConfig(training={**SMALL, **training})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def parameters(model: nn.Module) -> Mapping[str, torch.Tensor]:
    return dict(model.named_parameters())


def test_the_names_of_the_command_are_those_of_the_table():
    assert tuple(form.value for form in Form) == FORMATS
    assert all(callable(find_writer(name)) for name in FORMATS)


@pytest.mark.parametrize("name", ["transformer", "rwkv7"])
@pytest.mark.parametrize("form", ["safetensors", "hf"])
def test_a_built_in_model_is_read_back_and_the_nodes_folder_is_untouched(
    tmp_path: Path, text: Path, name: str, form: str
):
    state, prepared = write_state(tmp_path / "node", Workload(data=text), config(model=name))
    before = contents(tmp_path / "node")
    command = ["export", str(tmp_path / "node"), "--format", form, "--to", str(tmp_path / "out")]
    assert run(command) == 0
    assert contents(tmp_path / "node") == before

    tensors = load_file(tmp_path / "out" / "model.safetensors")
    own = parameters(prepared.trainer._model)
    assert tensors.keys() == own.keys()
    assert all(torch.equal(tensors[name], own[name]) for name in own)
    with safe_open(tmp_path / "out" / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"
        assert file.metadata()["neuroswarm_state"] == state.digest.hex()
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"`{state.digest.hex()}`" in card
    assert "does not tell of it" in card  # there is no log: nothing is made up
    if form == "hf":
        described = json.loads((tmp_path / "out" / "config.json").read_text())
        assert described["model_type"] == f"neuroswarm_{name}"
        assert described["dim"] == 16
    shutil.rmtree(tmp_path / "node")  # an export stands for itself
    assert load_text_model(tmp_path / "out").tokenizer.vocab_size == 256


def test_parameters_keep_their_dtypes_and_a_tied_one_is_written_once(tmp_path: Path):
    model = TinyModel(3).bfloat16()
    model.head.weight = nn.Parameter(torch.randn(32, 64, dtype=torch.float64))
    model.hidden.bias.requires_grad_(False)
    model.other = nn.ModuleList([model.embedding])
    write_state(tmp_path / "node", Workload(model, tiny_text()), config())
    record = open_source(tmp_path / "node").record
    assert record.tied == {"other.0.weight": "embedding.weight"}
    assert run(["export", str(tmp_path / "node"), "--to", str(tmp_path / "out")]) == 0
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert tensors["head.weight"].dtype == torch.float64
    assert tensors["embedding.weight"].dtype == torch.bfloat16
    assert torch.equal(tensors["embedding.weight"], model.embedding.weight)
    assert "other.0.weight" not in tensors
    assert "hidden.bias" not in tensors  # frozen, and nobody here can make the model


def test_frozen_parameters_are_written_where_the_model_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "half_frozen.py").write_text(
        "from neuroswarm.testing.tiny_workload import TinyModel\n"
        "def make(seed):\n"
        "    model = TinyModel(seed)\n"
        "    model.hidden.requires_grad_(False)\n"
        "    return model\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = config(model="half_frozen:make")
    _, prepared = write_state(tmp_path / "node", Workload(data=tiny_text()), made)
    assert run(["export", str(tmp_path / "node"), "--to", str(tmp_path / "out")]) == 0
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    own = parameters(prepared.trainer._model)
    assert tensors.keys() == own.keys()
    assert all(torch.equal(tensors[name], own[name]) for name in own)


def test_gpt2_from_python_is_exported_with_its_own_dtype(tmp_path: Path):
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(
        n_layer=1, n_embd=16, n_head=2, n_positions=32, vocab_size=32, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(shape).bfloat16()
    write_state(tmp_path / "node", Workload(model, tiny_text()), config())
    assert (
        run(["export", str(tmp_path / "node"), "--format", "hf", "--to", str(tmp_path / "o")]) == 0
    )
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "o", local_files_only=True)
    assert loaded.dtype == torch.bfloat16
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(tokens).logits, model.eval()(tokens).logits)


def test_the_tokenizer_of_a_folder_comes_along(tmp_path: Path):
    folder = write_gpt2(tmp_path / "gpt2", vocab_size=8)
    write_words(folder)
    (tmp_path / "text").write_text("the swarm trains on and on " * 300)
    made = config(model=f"hf:{folder}")
    write_state(tmp_path / "node", Workload(data=tmp_path / "text"), made)
    source = open_source(tmp_path / "node")
    assert source.record.vocab_size == 7
    kept = (folder / "tokenizer.json").read_bytes()
    shutil.rmtree(folder)  # the node keeps what an export needs
    assert (
        run(["export", str(tmp_path / "node"), "--format", "hf", "--to", str(tmp_path / "o")]) == 0
    )
    assert (tmp_path / "o" / "tokenizer.json").read_bytes() == kept
    assert load_text_model(tmp_path / "o").tokenizer.decode([3, 4]) == "swarm trains"


def test_the_newest_whole_state_counts(tmp_path: Path, text: Path):
    node, checkpoints = tmp_path / "node", tmp_path / "node" / "checkpoints"
    first, _ = write_state(node, Workload(data=text), config(seed=1), number=1)
    second, _ = write_state(node, Workload(data=text), config(seed=2), number=2)
    assert open_source(node).state.digest == second.digest
    assert open_source(checkpoints).state.digest == second.digest
    files = sorted(checkpoints.glob("outer-*"))
    assert open_source(files[0]).state.digest == first.digest
    damaged = bytearray(files[1].read_bytes())
    damaged[-1] ^= 1
    files[1].write_bytes(damaged)
    assert open_source(node).state.digest == first.digest
    assert CheckpointStore(checkpoints, 5).outer_digests() == [first.digest, second.digest]
    assert run(["export", str(files[1]), "--to", str(tmp_path / "out")]) == 74


def test_a_state_that_is_always_gone_before_it_is_read_is_not_looked_for_for_ever(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    write_state(tmp_path / "node", Workload(data=text), config())
    gone = tmp_path / "node" / "checkpoints" / f"outer-00000002-{'0' * 64}.safetensors"
    gone.symlink_to(tmp_path / "nowhere")
    assert run(["export", str(tmp_path / "node"), "--to", str(tmp_path / "out")]) == 74
    assert "replaced faster than they can be read" in capsys.readouterr().err


def test_a_folder_in_use_is_not_touched_without_force(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    write_state(tmp_path / "node", Workload(data=text), config())
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    (out / "README.md").write_text("mine")
    command = ["export", str(tmp_path / "node"), "--to", str(out)]
    assert run(command) == 78
    assert "is not empty: give another --to, or --force" in capsys.readouterr().err
    assert contents(out) == {"mine": b"mine", "README.md": b"mine"}
    assert run([*command, "--force"]) == 0
    assert (out / "mine").read_text() == "mine"
    assert "round 0" in (out / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_cannot_be_exported_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_state(tmp_path / "node", Workload(TinyModel(), tiny_text()), config())
    command = ["export", str(tmp_path / "node"), "--format", "hf", "--to", str(tmp_path / "out")]
    assert run(command) == 78
    assert "was handed to the node from Python" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"node"}


def test_what_is_no_state_is_named(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]):
    node, out = tmp_path / "node", str(tmp_path / "out")
    write_state(node, Workload(data=text), config())
    cases = {
        tmp_path / "no": "no folder and no file",
        text: "is no outer state",
        tmp_path: "no outer state in",
    }
    for path, said in cases.items():
        assert run(["export", str(path), "--to", out]) == 78
        assert said in capsys.readouterr().err
    shutil.rmtree(node / "checkpoints" / "model")
    assert run(["export", str(node), "--to", out]) == 78
    assert "nothing is known of the model" in capsys.readouterr().err
