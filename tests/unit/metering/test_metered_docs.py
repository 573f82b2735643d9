"""The numbers of docs/metered-links.md are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.config.metering import MIN_UPLOAD_BYTES_PER_S, MeteringConfig
from neuroswarm.metering import framing
from neuroswarm.metering.allowance import LAST_SHARE
from neuroswarm.metering.calendar import EARLIEST_S, MAX_AHEAD_S
from neuroswarm.metering.meter import SAVE_S, UNSEEN_SHARE
from neuroswarm.metering.upload_limit import SMALL_BYTES
from neuroswarm.node.home import MAX_TRAFFIC_BYTES

TEXT = (Path(__file__).parents[3] / "docs" / "metered-links.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


@pytest.mark.parametrize(
    "claim",
    [
        f"| {framing.CALL_BYTES} bytes beside each message of a call",
        f"| {100 * framing.CALL_SHARE:g} % of the bytes of calls",
        f"| {framing.DATAGRAM_BYTES} bytes beside each datagram",
        f"| {framing.UPKEEP_BYTES_PER_S:g} bytes a second and direction for each live peer",
        f"| {framing.HTTP_BYTES} bytes beside each HTTP request",
        f"| `sparing` | {100 * (1 - MeteringConfig().reserve):g} % of a cap",
        f"| `silent` | {100 * (1 - LAST_SHARE):g} % of a cap",
        f"The last {100 * LAST_SHARE:g} % are for",
        f"half of {100 * UNSEEN_SHARE:g} % of it",
        f"{MIN_UPLOAD_BYTES_PER_S // 1024} KiB/s at least",
        f"Messages up to {SMALL_BYTES // 1024} KiB",
        f"for following rounds, {MeteringConfig().reserve:g}",
    ],
)
def test_the_page_says(claim: str):
    assert claim in WORDS


def test_words_for_numbers():
    assert "five minutes" in WORDS
    assert SAVE_S == 5 * 60
    assert "up to two days" in WORDS
    assert MAX_AHEAD_S == 2 * 86_400
    assert "before 2020" in WORDS
    assert EARLIEST_S == 50 * 365.25 * 86_400 - 43_200
    assert MAX_TRAFFIC_BYTES >= 1024
