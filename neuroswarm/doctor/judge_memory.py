"""Whether there is memory and disk enough for a node: facts in, findings out.

Refuses to look at the machine.
"""

from __future__ import annotations

from neuroswarm.doctor.finding import Finding, fail, ok, show_bytes, warn
from neuroswarm.doctor.torch_probe import TorchFacts
from neuroswarm.hardware.disk import DiskFacts
from neuroswarm.hardware.memory import MemoryFacts

MEMORY, DISK = "memory", "disk"

USUAL_PEAK_BYTES = 600_000_000
"""What torch and one step of the default model take, if it was not measured."""
USUAL_SPACE_BYTES = 4_000_000_000
"""Address space that torch maps, if it was not measured."""
BESIDE_TORCH_BYTES = 400_000_000
"""Address space that a node maps besides: its servers, and the stacks and heaps of its threads."""
BYTES_PER_PARAMETER = 64
"""Besides the step: outer states that are kept for others, residual, ledger, contributions."""
USUAL_PARAMETERS = 1_000_000
COMFORT = 1.5
"""Memory that there should be, in needs: beside the node, the system and its caches want some."""
MAX_STALL = 0.1
"""Share of the time in which all programs may wait for memory."""

CHECKPOINT_BYTES_PER_PARAMETER = 24
"""Of one kept checkpoint: outer parameters and momentum, local ones, AdamW's two, the residual."""
NUM_CHECKPOINTS = 6
LEAST_DISK_BYTES = 200_000_000
GOOD_DISK_BYTES = 1_000_000_000
_IN_MEMORY = ("tmpfs", "ramfs")
_PI_FIX = (
    "add cgroup_enable=memory cgroup_memory=1 to the line in /boot/firmware/cmdline.txt and reboot"
)


def estimate_need(torch: TorchFacts | None) -> int:
    """Bytes that a node takes here: what the probe took, and what rounds take besides."""
    peak, parameters = USUAL_PEAK_BYTES, USUAL_PARAMETERS
    if torch is not None and torch.is_whole:
        peak, parameters = torch.peak_bytes or peak, torch.num_parameters or parameters
    return peak + BYTES_PER_PARAMETER * parameters


def _space_need(torch: TorchFacts | None) -> int:
    measured = torch.peak_space_bytes if torch is not None and torch.is_whole else None
    return (measured + BESIDE_TORCH_BYTES) if measured else USUAL_SPACE_BYTES


def judge_memory(
    facts: MemoryFacts,
    torch: TorchFacts | None,
    *,
    stall: float | None = None,
    is_container: bool = False,
    is_pi: bool = False,
) -> Finding:
    """Whether a node gets the memory that it needs.

    Args:
        facts: What is free, and what limits it.
        torch: What the probe took; None if it was not run.
        stall: Share of the time in which all programs wait for memory, 0 to 1; None: unknown.
        is_container: Whether this is one, so that a limit was probably meant.
        is_pi: Whether this is a Raspberry Pi, whose system ignores limits by default.
    """
    need = estimate_need(torch)
    space, space_need = facts.address_space_limit, _space_need(torch)
    if space is not None and space < space_need:
        return fail(
            MEMORY,
            f"address space is limited to {show_bytes(space)}; a node maps about "
            f"{show_bytes(space_need)}",
            "lift the limit: ulimit -v unlimited (systemd: LimitAS=infinity)",
        )
    room = facts.room
    if room is None:
        return ok(MEMORY, f"not told by this system; a node takes about {show_bytes(need)}")
    said = _describe(facts, room)
    if room < need:
        return fail(MEMORY, f"{said}; a node takes about {show_bytes(need)}", _fix(facts, need))
    if room < COMFORT * need:
        return warn(
            MEMORY, f"{said}; a node takes about {show_bytes(need)}", _fix(facts, COMFORT * need)
        )
    if stall is not None and stall > MAX_STALL:
        return warn(
            MEMORY,
            f"{said}, but programs waited for memory {100 * stall:.0f} % of the last 10 s",
            "stop programs that swap",
        )
    if facts.counts_groups is False and (is_container or is_pi):
        return warn(
            MEMORY,
            f"{said}; the kernel ignores memory limits of containers",
            _PI_FIX if is_pi else "boot with cgroup_enable=memory if you count on such a limit",
        )
    return ok(MEMORY, f"{said}; a node takes about {show_bytes(need)}")


def judge_disk(facts: DiskFacts, torch: TorchFacts | None, *, is_container: bool) -> Finding:
    """Whether a node can keep its key and checkpoints, and whether they last."""
    elsewhere = "give another folder with --state-dir"
    if facts.failure:
        return fail(DISK, f"cannot write in {facts.path}: {facts.failure}", f"{elsewhere}")
    if facts.free_bytes is None:
        return ok(DISK, f"{facts.path} can be written")
    parameters = (torch and torch.num_parameters) or USUAL_PARAMETERS
    need = NUM_CHECKPOINTS * CHECKPOINT_BYTES_PER_PARAMETER * parameters
    kind = f" on {facts.file_system}" if facts.file_system else ""
    said = f"{show_bytes(facts.free_bytes)} free{kind} for {facts.path}"
    if facts.free_bytes < max(need, LEAST_DISK_BYTES):
        return fail(
            DISK,
            f"{said}; checkpoints take {show_bytes(max(need, LEAST_DISK_BYTES))}",
            f"make room, or {elsewhere}",
        )
    if facts.file_system in _IN_MEMORY:
        return warn(DISK, f"{said}: in memory, lost at the next boot", elsewhere)
    if is_container and facts.file_system == "overlay":
        return warn(
            DISK,
            f"{said}: inside the container, lost with it",
            "mount a volume there (docker run -v neuroswarm:/var/lib/neuroswarm), and give it "
            "with --state-dir",
        )
    if facts.free_bytes < max(2 * need, GOOD_DISK_BYTES):
        return warn(DISK, said, f"make room, or {elsewhere}")
    card = "; an SD card: at most 2048 MB of checkpoints a day (checkpoint.daily_write_mb)"
    return ok(DISK, said + (card if facts.is_card else ""))


def _describe(facts: MemoryFacts, room: int) -> str:
    total = "" if facts.total is None else f" of {show_bytes(facts.total)}"
    limit, whole = facts.group_limit, facts.total
    if limit is None or (whole is not None and limit >= whole):
        return f"{show_bytes(room)} free{total}, no limit of a control group"
    return f"{show_bytes(room)} free, the control group's limit is {show_bytes(limit)}"


def _fix(facts: MemoryFacts, wanted: float) -> str:
    """More memory where it is short: from the container's limit, or of the machine."""
    megabytes = -(-int(wanted) // 50_000_000) * 50
    limit, free = facts.group_limit, facts.available
    if limit is not None and (free is None or limit - (facts.group_used or 0) < free):
        more = megabytes + (facts.group_used or 0) // 10**6
        return f"raise the limit to {more} MB at least (docker run --memory {more}m)"
    return f"stop other programs until {megabytes} MB are free, or train a smaller model"
