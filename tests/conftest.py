"""What every test gets: logging as pytest set it up, whatever a command did to it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo `configure_logging`: its handler writes to a stream that ends with the test."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    ours = [handler for handler in root.handlers if type(handler) is logging.StreamHandler]
    for handler in ours:
        root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers and type(handler) is not logging.StreamHandler:
            root.addHandler(handler)
    root.setLevel(level)
