"""A network of their own for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from netns_lab import Lab, find_obstacle, lab


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Lab]:
    """An empty network; the test is skipped, with the reason, where none can be made."""
    if why := find_obstacle():
        pytest.skip(why)
    with lab(tmp_path) as made:
        yield made
