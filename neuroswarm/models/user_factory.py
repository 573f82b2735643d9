"""Calls a user's function that makes a model, and says in one line what is wrong with it.

Knows nothing of what the model is trained on.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from neuroswarm.errors import ConfigError

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def call_factory(
    spec: str, offered: Mapping[str, int], *, seed: int
) -> tuple[nn.Module, Loss | None]:
    """Import a module, call a function of it, and check what it gives.

    Of what is offered the function gets, by keyword, what it has parameters for. torch's random
    numbers are seeded, so that it makes the same model wherever it draws from nothing else.

    Args:
        spec: `module:factory`; the module is an installed one or lies in the working folder. The
            factory may be an attribute of an attribute, and a class.
        offered: Arguments that it may declare, by name.
        seed: Of torch's default generator while it runs; what was before is restored.

    Returns:
        The model, and the loss function, if the factory gave a pair of both.

    Raises:
        ConfigError: there is no such module or function, it raised, or it gave no module.
    """
    module_name, _, path = spec.partition(":")
    factory = _find(module_name, path)
    arguments = _choose(spec, factory, offered)
    with _Blaming(f"{spec} raised"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = factory(**arguments)
    return _read_result(spec, made)


def _find(module_name: str, path: str) -> Callable[..., object]:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that a file here takes no installed module's place
    try:
        with _Blaming(f"cannot import {module_name}", leaving=ModuleNotFoundError):
            found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        is_it = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        what = "" if is_it else f"cannot import {module_name}: "
        raise ConfigError(
            f"training.model: {what}no module {error.name!r} (neither installed nor in {here})"
        ) from error
    whole = module_name
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"training.model: {whole} has no {name!r}")
        found, whole = getattr(found, name), f"{whole}.{name}"
    if not callable(found):
        raise ConfigError(
            f"training.model: {whole} is of type {type(found).__name__}, and cannot be called"
        )
    factory: Callable[..., object] = found
    return factory


def _choose(
    spec: str, factory: Callable[..., object], offered: Mapping[str, int]
) -> dict[str, int]:
    """What the factory declares of what is offered."""
    with _Blaming(f"{spec} does not tell its parameters"):
        parameters = inspect.signature(factory).parameters.values()
    for parameter in parameters:
        is_needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        is_offered = parameter.name in offered and parameter.kind != parameter.POSITIONAL_ONLY
        if is_needed and not is_offered:
            raise ConfigError(
                f"training.model: {spec} needs {parameter.name!r}; a factory is given "
                f"{', '.join(offered)} if it has parameters of these names, and nothing else"
            )
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in offered.items() if name in named}


def _read_result(spec: str, made: object) -> tuple[nn.Module, Loss | None]:
    model, loss = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"training.model: {spec} gave {_describe(made)} (a torch.nn.Module, or a pair of one "
            "and its loss function)"
        )
    if loss is not None and not callable(loss):
        raise ConfigError(
            f"training.model: the loss function that {spec} gave is of type {type(loss).__name__}"
        )
    return model, loss


def _describe(made: object) -> str:
    if isinstance(made, type) and issubclass(made, nn.Module):
        return f"the class {made.__name__}, not an object of it"
    return f"an object of type {type(made).__name__}"


def describe_error(error: BaseException) -> str:
    """Kind, words and place of what code that is not ours raised, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}".rstrip(": ") + where


class _Blaming:
    """Turns whatever the user's code raises into ConfigError, with the line that raised it."""

    def __init__(self, what: str, *, leaving: type[Exception] | None = None) -> None:
        self._what = what
        self._leaving = leaving

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        is_left = self._leaving is not None and isinstance(error, self._leaving)
        if isinstance(error, MemoryError) or is_left:
            return
        if isinstance(error, Exception | SystemExit):
            raise ConfigError(f"training.model: {self._what}: {describe_error(error)}") from error
