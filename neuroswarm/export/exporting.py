"""Writes an export: a folder that is there whole or not at all.

Knows nothing of what the forms have in them (`export/formats.py`).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from neuroswarm.checkpoint import peft_folder
from neuroswarm.checkpoint.durable import translating
from neuroswarm.errors import ConfigError
from neuroswarm.export.formats import find_writer
from neuroswarm.export.merging import naming_base, with_base, write_merged
from neuroswarm.export.model_card import render_card
from neuroswarm.export.safetensors_format import WEIGHTS
from neuroswarm.export.source import Source, open_source
from neuroswarm.export.training_log import read_log
from neuroswarm.hardware.disk import sync
from neuroswarm.models.hugging_face import CONFIG
from neuroswarm.node.about_model import RECORD

logger = logging.getLogger(__name__)

CARD = "README.md"
UNFINISHED = ".neuroswarm-export-"

_OF_FORMS = frozenset({peft_folder.CONFIG, peft_folder.TENSORS, WEIGHTS, CONFIG})
"""Files that not every form has, and by which others know one."""


def export(
    path: Path,
    form: str,
    to: Path,
    *,
    replaces: bool = False,
    merges: bool = False,
    base: Path | None = None,
) -> Source:
    """Write the newest outer state of a node's folder in another form.

    Args:
        path: As `open_source` takes it; only read.
        form: Name of a form.
        to: The folder to make.
        replaces: Whether `to` may have files; those of the same names, and of an earlier export,
            are replaced, the others stay.
        merges: Add low-rank adapters into their base.
        base: Where their base is; None for where the node had it.

    Returns:
        What was written.

    Raises:
        ConfigError: there is no state, the model has no such form, or `to` is in use.
        CheckpointError: a disk does not read or write.
    """
    to = to.expanduser().absolute()
    _refuse_in_use(to, replaces=replaces)
    source = open_source(path) if base is None else with_base(open_source(path), base)
    with translating("write", to), naming_base(base), ExitStack() as undo:
        unfinished = _make_unfinished(to)
        undo.callback(shutil.rmtree, unfinished, ignore_errors=True)
        if merges:
            write_merged(source, unfinished, form)
        else:
            find_writer(form)(source, unfinished)
        card = render_card(source, read_log(source), form, is_merged=merges)
        (unfinished / CARD).write_text(card, encoding="utf-8")
        for file in unfinished.iterdir():
            file.chmod(0o644)  # some libraries write for the owner alone
            sync(file)
        _refuse_in_use(to, replaces=replaces, besides=unfinished)
        if to.exists():
            _move_into(to, unfinished)
        else:
            unfinished.replace(to)
        sync(to)
        sync(to.parent)
    return source


def _make_unfinished(to: Path) -> Path:
    """A folder on the disk of `to`: a folder that is there may be where others are mounted."""
    to.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=to if to.is_dir() else to.parent))
    unfinished.chmod(0o755)
    return unfinished


def _move_into(to: Path, unfinished: Path) -> None:
    """Put an export into a folder that is there: one that was made, mounted or worked in.

    What an earlier export of another form left there goes: libraries would read both as one.
    """
    new = {file.name for file in unfinished.iterdir()}
    if (to / RECORD).is_file():
        for name in _OF_FORMS.difference(new):
            (to / name).unlink(missing_ok=True)
    for name in new:
        (unfinished / name).replace(to / name)


def _refuse_in_use(to: Path, *, replaces: bool, besides: Path | None = None) -> None:
    if to.exists() and not to.is_dir():
        raise ConfigError(f"{to} is no folder: give another --to")
    if not replaces and to.exists() and any(path != besides for path in to.iterdir()):
        raise ConfigError(
            f"{to} is not empty: give another --to, or --force to replace files of the same names"
        )
