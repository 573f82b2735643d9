"""The table of sizes in docs/models.md says what the code counts."""

import re
from pathlib import Path

import pytest

from neuroswarm.models.rwkv7 import count_parameters
from neuroswarm.models.rwkv7_shape import Rwkv7Config

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
PEAK_BYTES_PER_PARAMETER = 44
ROWS = re.findall(
    r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| ([\d,]+) \| ([\d.]+) GB \|$", PAGE.read_text(), re.M
)


def test_the_table_reaches_from_a_tenth_of_a_billion_to_one():
    counts = [int(row[3].replace(",", "")) for row in ROWS]
    assert any(0.08e9 < count < 0.12e9 for count in counts)
    assert any(0.98e9 < count < 1.02e9 for count in counts)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}x{row[1]} of {row[2]}")
def test_sizes_and_memory_are_true(row: tuple[str, ...]):
    dim, num_layers, vocab_size = map(int, row[:3])
    config = Rwkv7Config(dim=dim, num_layers=num_layers, vocab_size=vocab_size)
    count = count_parameters(config)
    assert f"{count:,}" == row[3]
    assert float(row[4]) == pytest.approx(count * PEAK_BYTES_PER_PARAMETER / 1e9, abs=0.05)
