"""Whether processor and torch can train: facts in, findings out.

Refuses to look at the machine.
"""

from __future__ import annotations

from neuroswarm.doctor.finding import Finding, fail, ok, skip, warn
from neuroswarm.doctor.import_child import IMPORT_NUMPY
from neuroswarm.doctor.torch_probe import TorchFacts
from neuroswarm.hardware.device_class import START_WINDOWS, DeviceClass
from neuroswarm.hardware.facts import MachineFacts
from neuroswarm.hardware.memory import is_out_of_memory
from neuroswarm.hardware.processor import ProcessorFacts

PROCESSOR, TORCH, POWER = "processor", "torch", "power"

MIN_SPEED_TOKENS_PER_S = 50.0
"""Below it a round of the default length takes hours."""
LOW_BATTERY = 0.2

_X86, _ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")
_V2 = ("sse4_2", "ssse3", "popcnt")
_X86_TORCH, _ARM_TORCH = "2.13.0", "2.9.1"
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_OLD_NUMPY = "pip install 'numpy<2.4'"

_COMMON_FLAGS = {"x86_64": "avx2", "AMD64": "avx2", "aarch64": "atomics", "arm64": "atomics"}
"""What a processor has for which builds of torch are made; those without are rarely tried."""


def is_risky(facts: ProcessorFacts) -> bool:
    """Whether a build of numpy or torch may kill whoever imports it here.

    Known: torch 2.10 for aarch64 uses the atomics of ARMv8.1 without asking; a Raspberry Pi 4 is
    ARMv8.0. Linux tells the flags of every processor; where there are none (macOS, Windows) wheels
    are made for all that the system runs on.
    """
    return bool(facts.flags) and _COMMON_FLAGS.get(facts.architecture) not in facts.flags


def judge_processor(facts: ProcessorFacts, device_class: DeviceClass | None = None) -> Finding:
    """Whether wheels of numpy and torch exist for it, and how much of it there is.

    Args:
        facts: What was read of it.
        device_class: Of the whole machine; None if it was not asked for.
    """
    if facts.bits < 64:
        kernel = f"on a {facts.architecture} kernel" if facts.architecture else ""
        return fail(
            PROCESSOR,
            f"a 32-bit system {kernel}: there is no torch for it".replace(" :", ":"),
            "install the 64-bit edition of the system",
        )
    if facts.architecture not in _X86 + _ARM:
        return fail(
            PROCESSOR,
            f"architecture {facts.architecture or 'unknown'}: no wheel of torch (x86_64, aarch64)",
            "use another machine, or build torch for this one",
        )
    missing = [flag for flag in _V2 if facts.flags and flag not in facts.flags]
    if facts.architecture in _X86 and missing:
        return fail(
            PROCESSOR,
            f"{describe(facts)}: lacks {', '.join(missing)} (numpy 2.4 needs x86-64-v2)",
            _OLD_NUMPY,
        )
    if facts.quota is not None and facts.quota < 1:
        return warn(
            PROCESSOR,
            f"{describe(facts)}, of which the control group gives {facts.quota:g}",
            "allow the container one processor at least (--cpus 1)",
        )
    if device_class is None:
        return ok(PROCESSOR, describe(facts))
    windows = START_WINDOWS[device_class]
    return ok(
        PROCESSOR,
        f"{describe(facts)}; class {device_class.value}: steps begin with {windows} windows",
    )


def judge_torch(
    facts: TorchFacts | None, processor: ProcessorFacts, *, why_not: str = ""
) -> Finding:
    """Whether torch runs here, and how fast.

    Args:
        facts: What the probe found; None if it was not run.
        processor: Decides which build of torch is advised.
        why_not: Why it was not run.
    """
    if facts is None:
        return skip(TORCH, why_not or "not tried")
    if facts.stage == IMPORT_NUMPY and (facts.killed_by == "SIGILL" or facts.error):
        return _judge_numpy(facts)
    install = advise_torch(processor)
    name = f"torch {facts.version}" if facts.version else "torch"
    doing = facts.stage or "end"
    if facts.killed_by == "SIGILL":
        return fail(
            TORCH,
            f"{name} dies on this processor when it is to {doing} (SIGILL: it was built for a "
            f"newer one)",
            install,
        )
    if facts.killed_by:
        return fail(
            TORCH,
            f"{name} was killed by {facts.killed_by} when it was to {doing}",
            "give the machine or its container more memory"
            if facts.killed_by == "SIGKILL"
            else install,
        )
    if "No module named 'torch'" in facts.error:
        return fail(TORCH, "torch is not installed", install)
    if is_out_of_memory(facts.error):
        return fail(
            TORCH,
            f"{name} finds no memory when it is to {doing}: {facts.error}",
            "give it more memory: see the line on memory",
        )
    if facts.error and facts.own_model:
        return fail(
            TORCH,
            f"{name} runs, but {facts.own_model} cannot be trained: {facts.error}",
            "mend training.model, or what it is made from, so that it takes a step",
        )
    if facts.error:
        fix = "see `resources` and `training` in docs/configuration.md"
        return fail(
            TORCH,
            f"{name} fails to {doing}: {facts.error}",
            fix if facts.stage == "train" else f"install it anew: {install}",
        )
    return _judge_speed(facts, processor, name)


def _judge_numpy(facts: TorchFacts) -> Finding:
    """What keeps numpy from being imported, which torch and this library need."""
    name = f"numpy {facts.numpy}" if facts.numpy else "numpy"
    if "No module named 'numpy'" in facts.error:
        return fail(TORCH, "numpy is not installed", "pip install numpy")
    if facts.error and "baseline optimizations" not in facts.error:
        return fail(TORCH, f"{name} cannot be imported: {facts.error}", "install it anew")
    return fail(TORCH, f"{name} does not run on this processor: it needs x86-64-v2", _OLD_NUMPY)


def advise_torch(processor: ProcessorFacts) -> str:
    """The exact line that installs a torch which runs on this machine."""
    if processor.architecture in _ARM:
        return f"pip install torch=={_ARM_TORCH}"
    line = f"pip install torch=={_X86_TORCH}"
    return line if processor.has_nvidia else f"{line} --index-url {_CPU_INDEX}"


def judge_power(facts: MachineFacts, processor: ProcessorFacts) -> Finding:
    """Whether heat, voltage or an emptying battery slow the machine down."""
    if facts.is_throttled:
        board = "a Raspberry Pi needs its own supply: 3 A, or 5 A for a Pi 5"
        return warn(
            POWER,
            "the firmware slows the processor down (low voltage or heat)",
            f"use a stronger power supply and a fan{f' ({board})' if processor.board else ''}",
        )
    if facts.heat_margin_c is not None and facts.heat_margin_c <= 0:
        return warn(POWER, "the processor is at its temperature limit", "cool it, or use a fan")
    if facts.is_discharging and facts.battery is not None and facts.battery < LOW_BATTERY:
        return warn(
            POWER,
            f"on battery, {100 * facts.battery:.0f} % left",
            "plug it in: training empties a battery within hours",
        )
    parts = []
    if facts.is_discharging and facts.battery is not None:
        parts.append(f"on battery, {100 * facts.battery:.0f} % left")
    if facts.heat_margin_c is not None:
        parts.append(f"{facts.heat_margin_c:.0f} K below the limit of heat")
    return ok(POWER, ", ".join(parts) or "nothing slows the processor down")


def _judge_speed(facts: TorchFacts, processor: ProcessorFacts, name: str) -> Finding:
    speed = facts.tokens_per_s or 0.0
    on = ", ".join(facts.devices) or facts.device
    said = (
        f"{name} on {on} ({facts.capability}, threads: {facts.num_threads}): "
        f"{speed:.0f} tokens/s with {facts.num_parameters or 0:,} parameters"
    )
    idle = [f"{device}: {state}" for device, state in facts.devices.items() if state != "trains"]
    if idle:
        return warn(
            TORCH,
            f"{said}; not all of them train: {'; '.join(idle)}",
            "a node goes on with the others; set resources.devices to those that work",
        )
    if processor.has_nvidia and facts.device == "cpu":
        return warn(
            TORCH,
            f"{said}; it does not use the NVIDIA accelerator of this machine",
            f"{advise_torch(processor)}, or --set resources.device=cpu if that is meant",
        )
    if speed < MIN_SPEED_TOKENS_PER_S:
        return warn(
            TORCH,
            f"{said}, under {MIN_SPEED_TOKENS_PER_S:.0f}",
            "stop other programs, or train a smaller model (training.dim, training.num_layers)",
        )
    return ok(TORCH, said)


def describe(facts: ProcessorFacts) -> str:
    """Board or name, architecture, how many are usable."""
    parts = [facts.board or facts.name or "processor", facts.architecture]
    parts.append(f"{facts.num_usable} usable")
    return ", ".join(part for part in parts if part)
