"""What is written beside tensors: a JSON document that carries its own hash.

Knows nothing of what it says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from neuroswarm.errors import CheckpointCorrupt

FORMAT = 2


def seal(body: Mapping[str, Any]) -> str:
    """The document as text, with its format and hash."""
    whole = {"format": FORMAT, **body}
    return json.dumps({"sha256": _hash(whole), "body": whole}, indent=1, allow_nan=False)


def unseal(text: str | bytes) -> dict[str, Any]:
    """The document that `seal` made.

    Raises:
        CheckpointCorrupt: it is not what was written, or of another format.
    """
    try:
        sealed = json.loads(text)
        recorded, body = sealed["sha256"], sealed["body"]
        is_whole = isinstance(body, dict) and _hash(body) == recorded
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointCorrupt(f"manifest cannot be read: {error}") from error
    if not is_whole:
        raise CheckpointCorrupt("manifest is not what was written")
    if body.get("format") != FORMAT:
        raise CheckpointCorrupt(f"format {body.get('format')} (this version reads {FORMAT})")
    return dict(body)


def _hash(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
