"""Whether this machine's clock can be believed: facts in, findings out.

Rounds do not need the calendar (intervals are monotonic); expiries of what leaves the machine do.
Refuses to look at the clock.
"""

from __future__ import annotations

import time

from neuroswarm.doctor.finding import Finding, fail, ok, warn
from neuroswarm.hardware.timekeeping import Timekeeping
from neuroswarm.membership.swarm_time import TOLERABLE_S

CLOCK = "clock"

BUILT_AT = 1796000000.0
"""Seconds since 1970 when this version was written: no clock that is right shows an earlier
instant. Set anew for every release."""

_DAY_S = 86400.0


def judge_clock(
    wall: float,
    keeping: Timekeeping,
    *,
    offset_s: float | None = None,
    witness: str = "",
    is_container: bool = False,
) -> Finding:
    """Whether the clock is right, by the peers if some answered, else by what is possible.

    Args:
        wall: What the machine says, seconds since 1970.
        keeping: What keeps it right.
        offset_s: How far others' clocks are before this one, seconds; None if nobody answered.
        witness: Who says so.
        is_container: Old container runtimes show 1970 on 32-bit hosts.
    """
    now = show_instant(wall)
    if wall < BUILT_AT:
        fix = _fix(keeping)
        if is_container:
            fix += "; in a container on an old 32-bit host, update libseccomp there (2.5 or newer)"
        return fail(
            CLOCK,
            f"it is {now} by this machine, before this program was written "
            f"({show_instant(BUILT_AT)})",
            fix,
        )
    if offset_s is not None and abs(offset_s) > TOLERABLE_S:
        way = "behind" if offset_s > 0 else "before"
        return fail(
            CLOCK,
            f"it is {now} by this machine, {show_duration(abs(offset_s))} {way} {witness}",
            _fix(keeping),
        )
    if offset_s is not None:
        return ok(CLOCK, f"{now}, {abs(offset_s):.1f} s from {witness}")
    if keeping.is_synchronized is False:
        lost = "" if keeping.has_battery is not False else ", and it stands still while it is off"
        return warn(CLOCK, f"{now}; nothing keeps this machine's clock right{lost}", _fix(keeping))
    return ok(CLOCK, now + (", kept right" if keeping.is_synchronized else ""))


def show_instant(wall: float) -> str:
    """An instant for people, in UTC."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(wall))
    except (OverflowError, ValueError, OSError):
        return f"{wall:.0f} s since 1970"


def show_duration(seconds: float) -> str:
    """A length of time for people: `90 s`, `3.0 hours`, `20787 days`."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 2 * _DAY_S:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / _DAY_S:.0f} days"


def _fix(keeping: Timekeeping) -> str:
    serve = "turn a time service on: timedatectl set-ntp true"
    if keeping.has_battery is False:
        return f"{serve} (this machine has no clock that runs on while it is off)"
    return serve
