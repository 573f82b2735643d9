"""Low-rank adapters as peft reads them, and added into their base."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from neuroswarm.checkpoint.peft_folder import write_peft
from neuroswarm.checkpoint.tensor_file import write_tensors
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.models.lora import branches, merge_lora
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.workload import Workload
from neuroswarm.testing.state_on_disk import write_state
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text

SMALL: dict[str, Any] = {"dim": 16, "num_layers": 2, "num_heads": 2, "context": 16}


class Trained:
    """A node's folder with a state of adapters on a built-in model, some values in them."""

    def __init__(self, folder: Path, **lora: Any) -> None:
        self.base = folder / "base.safetensors"
        write_tensors(self.base, Transformer(TransformerConfig(**SMALL), seed=3).state_dict())
        self.config = SwarmNodeConfig(training=SMALL, lora={"rank": 2, "base": self.base, **lora})
        self.folder = folder / "node"
        _, prepared = write_state(self.folder, Trembling(data=tiny_text()), self.config)
        self.model: nn.Module = prepared.trainer._model


class Trembling(Workload):
    """Adapters as if they were trained."""

    def prepare(self, *args: Any) -> Any:
        prepared = super().prepare(*args)
        shake(prepared.trainer._model)
        return prepared


def shake(model: nn.Module) -> None:
    with torch.no_grad():
        for branch in branches(model).values():
            branch.B.normal_(std=0.3, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    return Trained(tmp_path)


def export(folder: Path, to: Path, *flags: str) -> int:
    return run(["export", str(folder), "--to", str(to), *flags])


@pytest.mark.parametrize("train_a", [False, True])
def test_peft_form_has_what_the_model_has_and_needs_no_base(tmp_path: Path, train_a: bool):
    trained = Trained(tmp_path, train_a=train_a)
    trained.base.unlink()
    assert export(trained.folder, tmp_path / "out", "--format", "peft") == 0
    write_peft(trained.model, tmp_path / "straight")
    ours = load_file(tmp_path / "out" / "adapter_model.safetensors")
    theirs = load_file(tmp_path / "straight" / "adapter_model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| low-rank adapters | rank 2, alpha 4, A " in card


@pytest.mark.parametrize("form", ["safetensors", "hf"])
def test_a_merged_model_is_a_whole_one(trained: Trained, tmp_path: Path, form: str):
    assert export(trained.folder, tmp_path / "out", "--format", form, "--merge") == 0
    merge_lora(trained.model)
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    own = dict(trained.model.named_parameters())
    assert tensors.keys() == own.keys()
    assert all(torch.equal(tensors[name], own[name]) for name in own)
    assert "The base with the adapters added" in (tmp_path / "out" / "README.md").read_text()
    assert run(["generate", str(tmp_path / "out"), "--prompt", "a", "--tokenizer", "bytes",
                "--max-tokens", "2"]) == 0  # fmt: skip
    again = SwarmNodeConfig(training=SMALL, lora={"rank": 2, "base": tmp_path / "out"})
    _, prepared = write_state(tmp_path / "next", Workload(data=tiny_text()), again)
    assert torch.equal(
        prepared.trainer._model.get_parameter("embedding.weight"), own["embedding.weight"]
    )


def test_a_base_that_was_moved_is_named(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    moved = tmp_path / "moved.safetensors"
    shutil.move(trained.base, moved)
    assert export(trained.folder, tmp_path / "out", "--merge") != 0
    assert "base.safetensors is not there" in capsys.readouterr().err
    assert export(trained.folder, tmp_path / "out", "--merge", "--base", str(moved)) == 0


def test_another_base_is_refused(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_tensors(trained.base, Transformer(TransformerConfig(**SMALL), seed=4).state_dict())
    assert export(trained.folder, tmp_path / "out", "--merge") != 0
    assert "frozen parameters are others than at the node" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--format", "hf"), "low-rank adapters have no such form: give --format peft, or --merge"),
        (("--format", "peft", "--merge"), "--merge makes a whole model"),
    ],
)
def test_forms_that_adapters_do_not_have_are_refused(
    trained: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    said: str,
):
    assert export(trained.folder, tmp_path / "out", *flags) != 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--format", "peft"), ("--merge",)])
def test_a_whole_model_has_no_adapters_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
):
    workload = Workload(data=tiny_text())
    write_state(tmp_path / "node", workload, SwarmNodeConfig(training=SMALL))
    assert export(tmp_path / "node", tmp_path / "out", *flags) != 0
    assert "no low-rank adapters in this state" in capsys.readouterr().err


def test_adapters_of_a_model_from_python_are_exported_too(tmp_path: Path):
    model = TinyModel()
    config = SwarmNodeConfig(lora={"rank": 2, "targets": "hidden, embedding"})
    write_state(tmp_path / "node", Trembling(model, tiny_text()), config)
    assert export(tmp_path / "node", tmp_path / "out", "--format", "peft") == 0
    write_peft(model, tmp_path / "straight")
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_adapters_that_were_exported_alone_speak_as_the_node_does(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert export(trained.folder, tmp_path / "out", "--format", "peft") == 0
    said = []
    for source in (trained.folder, tmp_path / "out"):
        capsys.readouterr()
        assert run(["generate", str(source), "--prompt", "a", "--tokenizer", "bytes",
                    "--max-tokens", "20"]) == 0  # fmt: skip
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    trained.base.unlink()
    assert run(["generate", str(tmp_path / "out"), "--prompt", "a"]) == ExitCode.CONFIG
    told = capsys.readouterr().err
    assert "has adapters alone, and their base is not to be had here: lora.base: " in told
    assert "base.safetensors is not there" in told


def test_a_base_that_is_wrong_is_the_flags_fault(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    nowhere = tmp_path / "nowhere"
    assert export(trained.folder, tmp_path / "out", "--merge", "--base", str(nowhere)) != 0
    told = capsys.readouterr().err
    assert f"--base: {nowhere} is not there" in told
    assert "lora.base" not in told


def test_an_export_of_another_form_takes_the_place_of_adapters(trained: Trained, tmp_path: Path):
    out = tmp_path / "out"
    assert export(trained.folder, out, "--format", "peft") == 0
    (out / "notes.txt").write_text("mine")
    assert export(trained.folder, out, "--merge", "--force") == 0
    names = {path.name for path in out.iterdir()}
    assert not any(name.startswith("adapter_") for name in names)
    assert {"notes.txt", "model.safetensors"} <= names
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "adapter_config.json").write_text("{}")
    assert export(trained.folder, foreign, "--merge", "--force") == 0
    assert (foreign / "adapter_config.json").read_text() == "{}", "no export made it"


def test_a_folder_that_one_stands_in_can_be_exported_to(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert export(trained.folder, Path("."), "--format", "peft") == 0
    names = {path.name for path in Path.cwd().iterdir()}
    assert {"adapter_config.json", "README.md", "neuroswarm.json"} <= names
    assert not any(name.startswith(".") for name in names)
