"""Which modules the Python of a unit finds, which has no `PYTHONPATH` and another working folder.

Asks that Python itself, which alone knows what is installed; imports no module of a user.
"""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from neuroswarm.errors import ConfigError

if TYPE_CHECKING:
    from neuroswarm.config import SwarmNodeConfig

_FIND = """\
import importlib.util, sys
sys.path = [path for path in sys.path if path]
found = importlib.util.find_spec(sys.argv[1])
if found is None:
    sys.exit(1)
print(found.origin)
"""


def require_program(*, is_user: bool) -> None:
    """ConfigError if a unit would run no neuroswarm, or another than this one.

    Args:
        is_user: Whether the unit is one of the user who calls, with that user's own packages.
    """
    here = Path(__file__).parents[1]
    found = _find_installed(here.name, is_user=is_user)
    if found is None or Path(found).parent.resolve() != here.resolve():
        what = "no neuroswarm" if found is None else f"another neuroswarm ({Path(found).parent})"
        raise ConfigError(
            f"the service would find {what}: this one ({here}) is not installed for "
            f"{sys.executable}, and no unit has your PYTHONPATH or working folder (install it: "
            f"{sys.executable} -m pip install {here.parent})"
        )


def find_factory_folder(config: SwarmNodeConfig, *, is_user: bool) -> Path | None:
    """The folder in which the unit has to work to find the module of `training.model`.

    Args:
        config: Of the node.
        is_user: As `require_program` has it.

    Returns:
        The working folder, or the one of PYTHONPATH that has the module; None if it is installed,
        or there is none, as the model is no `module:factory`.

    Raises:
        ConfigError: the module is nowhere.
    """
    from neuroswarm.config.model_shape import BUILT_IN, HF_PREFIX

    model = config.training.model
    if model in BUILT_IN or model.startswith(HF_PREFIX):
        return None
    top, here = model.partition(":")[0].partition(".")[0], Path.cwd()
    for folder in _python_path():
        if _has(folder, top):
            return folder
    if _find_installed(top, is_user=is_user) is not None:
        return None
    if not _has(here, top):
        raise ConfigError(
            f"training.model: no module {top!r}, neither installed for the service's "
            f"{sys.executable}, nor in {here} or a folder of PYTHONPATH"
        )
    return here


def _python_path() -> list[Path]:
    """The folders of PYTHONPATH, which come before what is installed."""
    from neuroswarm.config.setting_paths import make_whole

    text = os.environ.get("PYTHONPATH", "")
    return [make_whole(Path(part)) for part in text.split(os.pathsep)] if text else []


def _has(folder: Path, module: str) -> bool:
    return importlib.machinery.PathFinder.find_spec(module, [str(folder)]) is not None


def _find_installed(module: str, *, is_user: bool) -> str | None:
    """Where the unit's Python finds a module by itself, or None."""
    flags = [] if is_user else ["-s"]  # a unit of the system has another home
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *flags, "-c", _FIND, module],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() if done.returncode == 0 else None
