"""The settings of a metered link, and the sizes that people write.

Refuses to know how bytes are counted.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from neuroswarm.config.section import Section
from neuroswarm.values import counted

Period = Literal["day", "month"]

MIN_UPLOAD_BYTES_PER_S = 16 * 1024
"""Slower than this, peers take a transfer for a stalled one."""

MIN_CAP_BYTES = 1_000_000
"""A cap below the heartbeats of an hour is a mistake, most likely a missing unit."""

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate(("K", "M", "G", "T"))
}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(k|K|M|G|T|Ki|Mi|Gi|Ti)?B?")
_CAP = re.compile(r"(.{1,40}?)\s*(?:/|\ba\b|\bper\b)\s*(day|month)")


def parse_size(text: str) -> int:
    """Bytes of a text like `500kB`, `1.5 GB` or `20 MiB`; a bare number is bytes.

    Raises:
        ValueError: it is no such text; says how to write it.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no number of bytes (write it like 500kB, 20MB or 1.5GB)")
    number, unit = found.groups()
    return int(float(number) * _UNITS["k" if unit == "K" else unit or ""])


def parse_cap(text: str) -> tuple[Period, int]:
    """Period and bytes of a text like `500MB/day` or `20 GB a month`.

    Raises:
        ValueError: it is no such text, or below 1 MB.
    """
    found = _CAP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no cap (write it like 500MB/day or 20GB/month)")
    size = parse_size(found[1])
    if size < MIN_CAP_BYTES:
        raise ValueError(
            f"{text!r} is too little: {counted(size, 'byte')} (at least 1MB; is a unit missing?)"
        )
    return ("day" if found[2] == "day" else "month"), size


class MeteringConfig(Section):
    """What a node may send and receive over a link that costs money or is slow."""

    prefix = "metering."

    max_upload_bytes_per_s: int | None = Field(default=None, ge=MIN_UPLOAD_BYTES_PER_S)
    """Bytes a second that the node sends at most, like `200kB`; short statements go first. Unset:
    no limit."""
    data_caps: tuple[str, ...] = Field(default=(), max_length=2)
    """Bytes sent and received in a day or a month of UTC, like `500MB/day` and `20GB/month`; one
    string may hold both, with a comma between them."""
    month_starts_on: int = Field(default=1, ge=1, le=28)
    """Day on which the month of the data plan begins."""
    reserve: float = Field(default=0.1, ge=0.05, le=0.5)
    """Share of each cap that is kept for following rounds; once only that is left, the node
    contributes nothing and gives no states."""

    @field_validator("max_upload_bytes_per_s", mode="before")
    @classmethod
    def _read_size(cls, value: object) -> object:
        size = parse_size(value.strip().removesuffix("/s")) if isinstance(value, str) else value
        if isinstance(size, int) and size < MIN_UPLOAD_BYTES_PER_S:
            raise ValueError(
                f"{value!r} is too little: {counted(size, 'byte')} a second (at least 16KiB; is a "
                "unit missing?)"
            )
        return size

    @field_validator("data_caps", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
            return value
        for text in texts:
            if not text.strip(", "):
                raise ValueError(f"{text!r} is no cap (write it like 500MB/day or 20GB/month)")
        return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())

    @field_validator("data_caps")
    @classmethod
    def _check_caps(cls, caps: tuple[str, ...]) -> tuple[str, ...]:
        periods = [parse_cap(text)[0] for text in caps]
        if len(set(periods)) < len(periods):
            raise ValueError(f"{', '.join(caps)}: two of one period, keep one")
        return caps

    def cap_bytes(self, period: Period) -> int | None:
        """The cap on a period; None without one."""
        return next((size for of, size in map(parse_cap, self.data_caps) if of == period), None)
