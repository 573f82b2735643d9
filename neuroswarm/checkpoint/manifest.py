"""What is written beside tensors: a JSON document that carries its own hash.

Knows nothing of what it says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from neuroswarm.errors import CheckpointCorrupt, NewerState

FORMAT = 2
"""Of all that a state folder holds. Whoever raises it reads the one before too."""


def seal(body: Mapping[str, Any]) -> str:
    """The document as text, with its format and hash."""
    whole = {"format": FORMAT, **body}
    return json.dumps({"sha256": _hash(whole), "body": whole}, indent=1, allow_nan=False)


def unseal(text: str | bytes) -> dict[str, Any]:
    """The document that `seal` made.

    Raises:
        CheckpointCorrupt: it is not what was written, or of a format that is not read any more.
        NewerState: it is of a format of a later version.
    """
    try:
        sealed = json.loads(text)
        recorded, body = sealed["sha256"], sealed["body"]
        is_whole = isinstance(body, dict) and _hash(body) == recorded
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointCorrupt(f"manifest cannot be read: {error}") from error
    if not is_whole:
        raise CheckpointCorrupt("manifest is not what was written")
    require_known(body.get("format"), "what is to be read")
    if body.get("format") != FORMAT:
        raise CheckpointCorrupt(f"format {body.get('format')} (this version reads {FORMAT})")
    return dict(body)


def require_known(found: object, what: str) -> None:
    """NewerState if `what` is of a format of a later version, which must not be changed."""
    if isinstance(found, int) and found > FORMAT:
        raise NewerState(
            f"{what} was written by a later version of neuroswarm (format {found}, this one reads "
            f"{FORMAT}): use that version, or another --state-dir; nothing was changed"
        )


def _hash(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
