"""Models from Hugging Face folders: offline, no code of the folder, no pickle."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from neuroswarm.errors import ConfigError
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.hugging_face import load_model, max_positions_of, open_folder, vocab_size_of
from neuroswarm.testing.tiny_gpt2 import write_gpt2


def change(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_a_configuration_alone_starts_at_random_from_the_seed(tmp_path: Path):
    folder = open_folder(write_gpt2(tmp_path / "m"))
    assert not folder.has_weights
    first, again, other = (load_model(folder, seed=seed) for seed in (1, 1, 2))
    assert first.training
    assert (vocab_size_of(first), max_positions_of(first)) == (256, 64)
    flats = [Fragments(model).flatten_all() for model in (first, again, other)]
    assert all(map(torch.equal, flats[0], flats[1]))
    assert not all(map(torch.equal, flats[0], flats[2]))


def test_weights_are_read_and_a_tied_head_travels_once(tmp_path: Path):
    plain = open_folder(write_gpt2(tmp_path / "m"))
    folder = open_folder(write_gpt2(tmp_path / "m", seed=1))
    assert folder.has_weights
    model = load_model(folder, seed=9)
    fragments = Fragments(model)
    expected = Fragments(load_model(plain, seed=1))
    assert all(map(torch.equal, fragments.flatten_all(), expected.flatten_all()))
    assert fragments.names == (
        "transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.h.1",
        "transformer.ln_f",
    )  # fmt: skip
    fragments.load_all([torch.full((size,), 0.5) for size in fragments.sizes])
    fragments.shift_all([torch.full((size,), 0.25) for size in fragments.sizes])
    assert model.lm_head.weight is model.transformer.wte.weight
    assert bool((model.lm_head.weight == 0.75).all())


def test_what_shapes_do_not_show_is_in_the_architecture(tmp_path: Path):
    def architecture(**changes: Any) -> bytes:
        folder = open_folder(change(write_gpt2(tmp_path / "m"), **changes))
        return Fragments(load_model(folder, seed=0)).architecture

    reference = architecture()
    assert architecture(n_head=4) != reference
    assert architecture(transformers_version="4.0", use_cache=False, dtype="bfloat16") == reference


def test_pickles_are_refused_unless_there_are_safetensors(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ConfigError, match=r"pytorch_model.bin may run code when it is read"):
        open_folder(folder)
    sound = write_gpt2(tmp_path / "sound", seed=0) / "model.safetensors"
    sound.rename(folder / sound.name)
    assert open_folder(folder).has_weights


def test_code_of_a_folder_is_not_run(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m")
    (folder / "modeling_x.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    theirs = {"AutoConfig": "modeling_x.C", "AutoModelForCausalLM": "modeling_x.M"}
    change(folder, model_type="their_own", auto_map=theirs)
    with pytest.raises(ConfigError, match="no causal model can be made of"):
        load_model(open_folder(folder), seed=0)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no config.json"),
        ({"config.json": "{"}, "config.json is no JSON"),
        ({"config.json": "[]"}, "config.json is no JSON object"),
    ],
    ids=["nothing", "half", "list"],
)
def test_what_is_no_model_is_named(tmp_path: Path, files: dict[str, str], said: str):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=said):
        open_folder(tmp_path)
    with pytest.raises(ConfigError, match="no folder"):
        open_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "changes",
    [{"model_type": "none_such"}, {"model_type": "vit"}, {"n_layer": 3}, {"n_head": 7}],
    ids=["unknown", "no language model", "weights are missing", "heads do not divide"],
)
def test_what_the_library_refuses_is_one_line(tmp_path: Path, changes: dict[str, Any]):
    folder = change(write_gpt2(tmp_path / "m", seed=0), **changes)
    with pytest.raises(ConfigError) as caught:
        load_model(open_folder(folder), seed=0)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_models_may_be_made_by_several_threads(tmp_path: Path):
    folder = open_folder(write_gpt2(tmp_path / "m", seed=0))
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(lambda _: load_model(folder, seed=0), range(8)))
    assert all(model.lm_head.weight is model.transformer.wte.weight for model in models)


def test_damaged_weights_are_refused(tmp_path: Path):
    folder = write_gpt2(tmp_path / "m", seed=0)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="no causal model can be made of"):
        load_model(open_folder(folder), seed=0)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_weights_are_not_left_mapped_from_the_file(tmp_path: Path):
    folder = open_folder(write_gpt2(tmp_path / "m", width=256, seed=1))
    model = load_model(folder, seed=0)
    assert str(folder.path) not in Path("/proc/self/maps").read_text()
    (folder.path / "model.safetensors").write_bytes(b"")  # with mapped weights: SIGBUS
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert model.lm_head.weight is model.transformer.wte.weight
