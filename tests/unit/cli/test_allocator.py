"""The C library's pools are limited, unless the user has chosen."""

import ctypes
import sys

from neuroswarm.cli.allocator import limit_arenas


def has_pools() -> bool:
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


def test_the_number_of_pools_is_limited_where_there_are_any():
    assert limit_arenas({}) == has_pools()


def test_the_users_choice_stands():
    assert not limit_arenas({"MALLOC_ARENA_MAX": "8"})
