"""Hugging Face causal language models from a folder on this disk.

Nothing is downloaded, no code of the folder is run, no pickle is read. Knows nothing of training.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn

from neuroswarm.errors import ConfigError
from neuroswarm.hardware.memory import is_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG = "config.json"
VOCABULARY = "tokenizer.json"
SIDE_FILES = (
    CONFIG, "generation_config.json", VOCABULARY, "tokenizer_config.json", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
)  # fmt: skip
"""What of a folder belongs to a model besides its weights; small files."""

MAX_SIDE_FILE_BYTES = 64 * 1024 * 1024

_ALONE = threading.Lock()
"""Held while a model is made. The library replaces functions of its own and of torch meanwhile:
two threads at once leave them replaced, and from then on tied weights count as missing."""

_VOLATILE = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
)
"""Entries of a configuration that change nothing of what the model computes."""

MAX_NAMED = 5
"""Names that an error lists at most."""


@dataclass(frozen=True, slots=True)
class HfFolder:
    """A folder with a model's configuration; read, but nothing of it loaded."""

    path: Path
    config: Mapping[str, Any]
    has_weights: bool

    @property
    def vocabulary(self) -> Path | None:
        """The file of its tokenizer, if it has one."""
        path = self.path / VOCABULARY
        return path if path.is_file() else None

    def read_side_files(self) -> dict[str, bytes]:
        """Configuration and tokenizer by their names.

        Raises:
            ConfigError: a file cannot be read or is too large.
        """
        found = {}
        for name in SIDE_FILES:
            path = self.path / name
            if path.is_file():
                found[name] = _read(path)
        return found


def open_folder(path: Path) -> HfFolder:
    """Look at a folder.

    Raises:
        ConfigError: there is no configuration, or the weights are in a form that is not read.
    """
    if not path.is_dir():
        raise ConfigError(f"training.model: no folder {path} (hf: names one on this disk)")
    if not (path / CONFIG).is_file():
        raise ConfigError(f"training.model: {path} has no {CONFIG}")
    try:
        config = json.loads(_read(path / CONFIG))
    except ValueError as error:
        raise ConfigError(f"training.model: {path / CONFIG} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"training.model: {path / CONFIG} is no JSON object")
    has_weights = any(path.glob("model*.safetensors"))
    pickles = sorted(
        file.name for kind in ("pytorch_model*.bin", "*.pt", "*.pth") for file in path.glob(kind)
    )
    if pickles and not has_weights:
        raise ConfigError(
            f"training.model: {path / pickles[0]} may run code when it is read, so it is not: "
            "save the weights as safetensors (save_pretrained does), or remove them for a random "
            "start"
        )
    return HfFolder(path, config, has_weights)


def load_model(folder: HfFolder, *, seed: int) -> PreTrainedModel:
    """Make the folder's model, in float32 and training mode, with its weights if it has them.

    Args:
        folder: As `open_folder` found it.
        seed: Of the initial parameters, if there are no weights.

    Returns:
        A model whose `dimensions` are the configuration.

    Raises:
        ConfigError: the libraries are not installed, or they cannot make a model of the folder.
    """
    transformers = import_transformers()
    where = str(folder.path)
    local = {"local_files_only": True, "trust_remote_code": False}
    auto = transformers.AutoModelForCausalLM
    with _ALONE, quiet(), _blaming(folder.path), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        config = transformers.AutoConfig.from_pretrained(where, **local)
        if folder.has_weights:
            model, info = auto.from_pretrained(
                where, config=config, dtype=torch.float32, use_safetensors=True,
                output_loading_info=True, **local,
            )  # fmt: skip
        else:
            info = {}
            model = auto.from_config(config, dtype=torch.float32, trust_remote_code=False)
    _check_whole(folder.path, info)
    _leave_the_file(model)
    model.train()
    model.dimensions = _dimensions(folder.config)
    return model  # type: ignore[no-any-return]


@torch.no_grad()
def _leave_the_file(model: nn.Module) -> None:
    """Hold parameters and buffers in memory: the library leaves them mapped from the weights' file.

    Whoever cuts that file, as by copying another one over it, would kill the process with SIGBUS.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def import_transformers() -> Any:
    """The library; ConfigError if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            "Hugging Face models need the library `transformers`: pip install 'neuroswarm[hf]'"
        ) from error
    return transformers


def is_pretrained(model: nn.Module) -> bool:
    """Whether a module is a model of `transformers`; imports nothing."""
    return any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(model).__mro__
    )


def save(model: nn.Module, folder: Path) -> None:
    """Write a model of `transformers` as the library does: configurations and safetensors."""
    with quiet():
        model.save_pretrained(folder)  # type: ignore[operator]


def describe(model: nn.Module) -> dict[str, bytes]:
    """The side files of a model of `transformers` that came from no folder."""
    files = {CONFIG: model.config.to_json_string(use_diff=False).encode()}  # type: ignore[union-attr, operator]
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        files["generation_config.json"] = generation.to_json_string(use_diff=False).encode()
    return files


def vocab_size_of(model: PreTrainedModel) -> int:
    """Tokens that its embedding knows."""
    embedding: nn.Embedding = model.get_input_embeddings()  # type: ignore[assignment]
    return embedding.weight.shape[0]


def max_positions_of(model: PreTrainedModel) -> int | None:
    """Longest sequence that its configuration allows; None if it says none."""
    found = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _dimensions(config: Mapping[str, Any]) -> dict[str, str]:
    """The configuration as the file has it: versions of the library add different things to it."""
    kept = {key: value for key, value in config.items() if key not in _VOLATILE}
    return {"config": json.dumps(kept, sort_keys=True, separators=(",", ":"))}


def _check_whole(path: Path, info: Mapping[str, Any]) -> None:
    for kind in ("missing_keys", "mismatched_keys"):
        names = sorted(str(name) for name in info.get(kind) or ())
        if names:
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            raise ConfigError(
                f"training.model: weights in {path} do not fit its {CONFIG}: "
                f"{kind.removesuffix('_keys')} {', '.join(names[:MAX_NAMED])}{more}"
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's bars and advice out of a node's log; what fails is an error anyway."""
    logging = import_transformers().utils.logging
    before, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if had_bars:
            logging.enable_progress_bar()


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn what the library says of a folder into ConfigError."""
    try:
        yield
    except (
        OSError, ValueError, KeyError, AttributeError, ImportError, TypeError, RuntimeError,
        SafetensorError,
    ) as error:  # fmt: skip
        if isinstance(error, RuntimeError) and is_out_of_memory(str(error)):
            raise
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(
            f"training.model: no causal model can be made of {path}: {said}"
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIDE_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_SIDE_FILE_BYTES:
        raise ConfigError(f"{path} is too large: over {MAX_SIDE_FILE_BYTES} bytes")
    return data
