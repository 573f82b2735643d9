from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from neuroswarm.hardware.process_limits import WANTED_FILES, raise_file_limit

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
ATTAINABLE = WANTED_FILES if HARD == resource.RLIM_INFINITY else min(HARD, WANTED_FILES)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_desktop_limit_is_raised_as_far_as_allowed():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, HARD))
    assert raise_file_limit() == ATTAINABLE
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (ATTAINABLE, HARD)


def test_a_limit_that_is_high_already_stays():
    resource.setrlimit(resource.RLIMIT_NOFILE, (ATTAINABLE, HARD))
    assert raise_file_limit() == ATTAINABLE
