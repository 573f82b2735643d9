"""What the checkpoint benchmark found, and which of its promises hold. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

REPORT_VERSION = 1
MAX_STALL_VS_COPY = 1.5
MAX_BYTES_RATIO = 1.02
MIN_JUDGED_PARAMS = 10_000_000
"""Below that, a stall is milliseconds and says more of the machine's other work."""
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Cycle:
    """One outer state, one checkpoint and one plain copy."""

    stall_s: float
    """No inner step ran for so long because of the snapshot."""
    copy_stall_s: float
    """The same for a plain copy of the bytes that the snapshot copied."""
    outer_stall_s: float
    """Time of jobs on the compute thread while the outer state was written."""
    outer_write_s: float
    inner_write_s: float
    outer_bytes: int
    inner_bytes: int
    copied_bytes: int
    bytes_written: int
    step_s: float
    """Median inner step while all this was written."""

    def __str__(self) -> str:
        return (
            f"stall {self.stall_s * 1000:.1f} ms, plain copy {self.copy_stall_s * 1000:.1f} ms, "
            f"written {self.bytes_written / MB:.1f} MB in "
            f"{self.outer_write_s + self.inner_write_s:.2f} s"
        )


def summarise(
    num_params: int, cycles: Sequence[Cycle], *, plain_write_s: float, idle_step_s: float
) -> dict[str, Any]:
    """The report, as JSON values.

    Args:
        num_params: Of the model.
        cycles: At least one.
        plain_write_s: Seconds to write the bytes of an outer state plainly.
        idle_step_s: Median inner step while nothing is written.
    """
    stall_s = max(cycle.stall_s for cycle in cycles)
    copy_s = max(cycle.copy_stall_s for cycle in cycles)
    expected = sum(cycle.outer_bytes + cycle.inner_bytes for cycle in cycles)
    written = sum(cycle.bytes_written for cycle in cycles)
    report = {
        "version": REPORT_VERSION,
        "num_params": num_params,
        "stall_s": stall_s,
        "copy_s": copy_s,
        "stall_vs_copy": stall_s / copy_s,
        "stall_vs_copy_median": statistics.median(c.stall_s for c in cycles)
        / statistics.median(c.copy_stall_s for c in cycles),
        "stall_vs_copy_least": min(c.stall_s for c in cycles) / min(c.copy_stall_s for c in cycles),
        "outer_stall_s": sum(cycle.outer_stall_s for cycle in cycles),
        "bytes_written": written,
        "bytes_expected": expected,
        "bytes_ratio": written / expected,
        "outer_bytes_per_s": _speed([(c.outer_bytes, c.outer_write_s) for c in cycles]),
        "inner_bytes_per_s": _speed([(c.inner_bytes, c.inner_write_s) for c in cycles]),
        "plain_bytes_per_s": cycles[0].outer_bytes / plain_write_s,
        "step_s": idle_step_s,
        "step_while_writing_s": statistics.median(cycle.step_s for cycle in cycles),
        "cycles": [asdict(cycle) for cycle in cycles],
    }
    report["promises"] = check_promises(report)
    return report


def check_promises(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What was promised, what was found, and whether it holds."""
    promises = [
        _promise(
            "outer_stall_s",
            report["outer_stall_s"] == 0,
            f"outer states took {report['outer_stall_s']:.6f} s of the compute thread "
            "(promised: 0)",
        ),
        _promise(
            "bytes_ratio",
            1 <= report["bytes_ratio"] <= MAX_BYTES_RATIO,
            f"{report['bytes_ratio']:.4f} x the expected bytes were written "
            f"(promised: 1 to {MAX_BYTES_RATIO})",
        ),
    ]
    if report["num_params"] >= MIN_JUDGED_PARAMS:
        ratio = report["stall_vs_copy"]
        said = f"the longest stall is {ratio:.2f} x a plain copy (promised: {MAX_STALL_VS_COPY})"
        promises.append(_promise("stall_vs_copy", ratio <= MAX_STALL_VS_COPY, said))
    return promises


def make_rows(report: dict[str, Any]) -> list[list[str]]:
    """The report as rows for a table; the first is the heading."""
    copied = report["cycles"][0]["copied_bytes"]
    plain = _mb(report["plain_bytes_per_s"])
    return [
        ["", "checkpoint", "plain"],
        ["bytes copied", _mb(copied), _mb(copied)],
        ["longest stall", _ms(report["stall_s"]), _ms(report["copy_s"])],
        ["  ratio", f"{report['stall_vs_copy']:.2f}", "1"],
        ["stall by outer states", _ms(report["outer_stall_s"]), "0"],
        ["bytes written", _mb(report["bytes_written"]), _mb(report["bytes_expected"])],
        ["writing outer states, a second", _mb(report["outer_bytes_per_s"]), plain],
        ["writing the rest, a second", _mb(report["inner_bytes_per_s"]), plain],
        ["inner step", _ms(report["step_while_writing_s"]), _ms(report["step_s"])],
    ]


def _mb(num_bytes: float) -> str:
    return f"{num_bytes / MB:.1f} MB"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _speed(parts: Sequence[tuple[int, float]]) -> float:
    return sum(size for size, _ in parts) / sum(seconds for _, seconds in parts)


def _promise(name: str, holds: bool, said: str) -> dict[str, Any]:
    return {"name": name, "holds": holds, "said": said}
