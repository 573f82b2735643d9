"""How many files and connections the process may have open at once.

Refuses to know what they are for.
"""

from __future__ import annotations

import contextlib
import resource

WANTED_FILES = 65536


def raise_file_limit() -> int:
    """Raise the soft limit as far as the hard one allows, at most to `WANTED_FILES`.

    Usual soft limits are those of desktop programs (256 to 1024): a few hundred callers that say
    nothing would leave none for the node's own files. Returns the limit that holds then.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems promise more than they give
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
