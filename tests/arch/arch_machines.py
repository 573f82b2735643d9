"""Makes Pythons that run on other processors: user-mode emulation, with the libraries they need.

Each is a program named `python` that starts the real one under QEMU, so that what it starts by its
own `sys.executable` is emulated too. Its `/proc/cpuinfo` is that of the machine it stands for, as
QEMU shows that of the host. Everything lies in one folder and is made once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PINS = REPOSITORY / "neuroswarm/deployment/files/constraints-arm64.txt"
BAD_TORCH = "2.10.0"
"""Dies by SIGILL on ARMv8.0."""

_DEBIAN = "bookworm"
_DEBIAN_PYTHON = "python3.11"
_LIBRARIES = ("ca-certificates", "zlib1g", "libstdc++6", "libgomp1")

_A72_CPUINFO = """\
processor\t: 0
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd08
"""
_A72_BOARD = "Raspberry Pi 4 Model B (emulated)"
_A72_MIDR = "0x00000000410fd083\n"
"""Main ID register, as Linux shows it: Arm, Cortex-A72, r0p3."""
_IVY_BRIDGE = "IvyBridge,-x2apic,-tsc-deadline"
"""Without what QEMU has not, or it says so for each thread."""
_IVY_BRIDGE_CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel Xeon E3-12xx v2 (Ivy Bridge, emulated)
flags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt aes avx f16c
"""


class Unprepared(Exception):
    """A machine cannot be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A Python and where it finds this project."""

    name: str
    python: Path
    paths: tuple[Path, ...] = ()
    """What `PYTHONPATH` begins with."""

    def environment(self, *first: Path) -> dict[str, str]:
        """Of its processes: this one's, without settings of nodes.

        Args:
            first: Folders that go before all others in `PYTHONPATH`.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
        inherited = [] if self.paths else [kept.get("PYTHONPATH", "")]
        paths = [str(path) for path in (*first, *self.paths)] + inherited
        return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def make_native() -> Machine:
    """This machine, as it is."""
    return Machine("native", Path(sys.executable))


def make_ivy_bridge(folder: Path) -> Machine:
    """An Intel processor of 2012 (AVX, no AVX2) with the packages of the Python that runs this."""
    qemu = _require("qemu-x86_64", "qemu-user")
    root = folder / "root"
    _write(root / "proc" / "cpuinfo", _IVY_BRIDGE_CPUINFO)
    home = Path(sys.executable).resolve().parent
    _write(folder / "pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\n")
    packages = folder / "lib"
    packages.unlink(missing_ok=True)
    packages.symlink_to(Path(sys.prefix) / "lib")
    python = folder / "bin" / "python"
    _write_wrapper(python, [qemu, "-cpu", _IVY_BRIDGE, "-L", str(root)], Path(sys.executable))
    return Machine("ivybridge", python)


def make_cortex_a72(folder: Path, say: Callable[[str], None]) -> Machine:
    """A Raspberry Pi 4: Debian's Python, the pinned wheels, and the wheel of this project."""
    qemu = _require("qemu-aarch64-static", "qemu-user-static")
    root, packages, project = folder / "root", folder / "packages", folder / "project"
    make_once(root, _DEBIAN, lambda: _unpack_debian(root, say))
    pins = hashlib.sha256(PINS.read_bytes()).hexdigest()
    make_once(packages, pins, lambda: _install_pins(folder, packages, say))
    make_once(project, _hash_sources(), lambda: _build_project(folder, project, say))
    _write(root / "proc" / "cpuinfo", _A72_CPUINFO)
    system = root / "sys"
    _write(system / "firmware" / "devicetree" / "base" / "model", _A72_BOARD)
    _write(system / "devices/system/cpu/cpu0/regs/identification/midr_el1", _A72_MIDR)
    python = root / "usr" / "bin" / "python"
    real = root / "usr" / "bin" / _DEBIAN_PYTHON
    _write_wrapper(python, [qemu, "-cpu", "cortex-a72", "-L", str(root)], real)
    return Machine("cortex-a72", python, (project, packages))


def fetch_bad_torch(folder: Path, say: Callable[[str], None]) -> Path:
    """The torch that a Cortex-A72 dies of, in a folder of its own."""
    target = folder / f"torch-{BAD_TORCH}"

    def install() -> None:
        wanted = [f"torch=={BAD_TORCH}"]
        say(f"downloading torch {BAD_TORCH} for aarch64")
        _download(folder / "wheels", wanted)
        _install(folder / "wheels", target, wanted)

    make_once(target, BAD_TORCH, install)
    return target


# -- steps ----------------------------------------------------------------------------


def make_once(target: Path, key: str, make: Callable[[], None]) -> None:
    """Make a folder anew unless it was finished before from the same `key`.

    Args:
        target: The folder; `make` finds the one that holds it, and nothing at its place.
        key: What it is made from.
        make: Makes it; what it raises leaves the folder to be made anew.
    """
    stamp = target.with_name(f"{target.name}.done")
    if stamp.exists() and stamp.read_text() == key:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    make()
    _write(stamp, key)


def _unpack_debian(root: Path, say: Callable[[str], None]) -> None:
    """Unpack the packages; nothing of them is run."""
    mmdebstrap = _require("mmdebstrap", "mmdebstrap")
    say("unpacking Debian's Python for arm64")
    wanted = ",".join((_DEBIAN_PYTHON, *_LIBRARIES))
    options = ["--variant=extract", "--architectures=arm64", f"--include={wanted}", "--quiet"]
    _run([mmdebstrap, *options, _DEBIAN, str(root)])


def _install_pins(folder: Path, packages: Path, say: Callable[[str], None]) -> None:
    say("downloading the pinned wheels for aarch64")
    pins = ["--requirement", str(PINS)]
    _download(folder / "wheels", pins)
    _install(folder / "wheels", packages, pins)


def _hash_sources() -> str:
    """Changes with whatever the wheel is made of."""
    summary = hashlib.sha256()
    sources = (REPOSITORY / "neuroswarm").rglob("*")
    for path in sorted((*filter(Path.is_file, sources), REPOSITORY / "pyproject.toml")):
        if "__pycache__" not in path.parts:
            summary.update(f"{path} {path.stat().st_size}\n".encode() + path.read_bytes())
    return summary.hexdigest()


def _build_project(folder: Path, project: Path, say: Callable[[str], None]) -> None:
    """Build this repository's wheel and unpack it."""
    say("building the wheel of this project")
    built = folder / "built"
    shutil.rmtree(built, ignore_errors=True)
    _pip("wheel", "--no-deps", "--wheel-dir", str(built), str(REPOSITORY))
    (wheel,) = built.glob("neuroswarm-*.whl")
    _pip("install", "--no-deps", "--no-index", "--target", str(project), str(wheel))


def _download(wheels: Path, wanted: Sequence[str]) -> None:
    """Download wheels; what is there already is not asked for again."""
    _pip("download", "--no-deps", "--dest", str(wheels), *_platform(), *wanted)


def _install(wheels: Path, target: Path, wanted: Sequence[str]) -> None:
    places = ["--no-index", "--find-links", str(wheels), "--target", str(target)]
    _pip("install", "--no-deps", *places, *_platform(), *wanted)


def _platform() -> list[str]:
    """What pip needs to be told to take wheels of another machine."""
    tags = [f"manylinux_2_{minor}_aarch64" for minor in (36, 31, 28, 27, 24, 17)]
    flags = [f"--platform={tag}" for tag in (*tags, "manylinux2014_aarch64", "any")]
    flags += [f"--abi={abi}" for abi in ("cp311", "abi3", "none")]
    return [*flags, "--python-version=3.11", "--implementation=cp", "--only-binary=:all:"]


def _pip(*arguments: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise Unprepared(f"{' '.join(command[:5])} ... ended with {done.returncode}:\n{tail}")


def _require(program: str, package: str) -> str:
    if found := shutil.which(program):
        return found
    raise Unprepared(f"{program} is not there: apt install {package}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_wrapper(python: Path, emulator: Sequence[str], real: Path) -> None:
    command = " ".join(f"'{part}'" for part in emulator)
    # -0 is what the emulated Python takes for its own name, so that it starts itself by it.
    _write(python, f'#!/bin/sh\nexec {command} -0 "$0" \'{real}\' "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
