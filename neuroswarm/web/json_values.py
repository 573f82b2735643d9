"""Values of a status as strict JSON.

Refuses to know what they mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def to_json(value: object) -> str:
    """Strict JSON: numbers that are not finite become null, bytes become hex digits.

    Raises:
        TypeError: a value is neither of JSON nor bytes.
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else str(key)
