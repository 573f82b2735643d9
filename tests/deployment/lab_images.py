"""The images of a lab, where no image registry may be in reach: base, wheels, builds, copies.

Refuses to know what the images are for.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from lab_engines import HOST_ADDRESS, Engine, LabFailed, call

PYTHON = "3.11"
BASE = f"python:{PYTHON}-slim-bookworm"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
WHEELS_PORT = 8078
"""Always the same: the engine's cache of a build goes by what pip is told."""

ROOT = Path(__file__).parents[2]
FILES = ROOT / "neuroswarm" / "deployment" / "files"


def get_base(engine: Engine, cache: Path) -> str:
    """Pull the base image, or make one that stands in for it; returns how it came.

    Debian's own Python of that version, by debootstrap; kept in `cache` for the next time.
    """
    try:
        engine.docker("pull", "--quiet", BASE)
    except LabFailed:
        pass
    else:
        return "pulled"
    archive = make_base(cache)
    engine.docker("import", "--change", 'CMD ["python3"]', str(archive), BASE)
    return "made by debootstrap"


def make_base(cache: Path) -> Path:
    """An archive of a Debian with Python and pip, made by debootstrap unless it is there."""
    archive = cache / "rootfs.tar"
    if archive.exists():
        return archive
    if shutil.which("debootstrap") is None:
        raise LabFailed(f"{BASE} cannot be pulled, and debootstrap is not installed to make it")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        root, partial = Path(scratch, "rootfs"), Path(scratch, "rootfs.tar")
        call("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
        call("tar", "--one-file-system", "-C", str(root), "-cf", str(partial), ".")
        partial.rename(archive)
    return archive


def get_wheels(cache: Path, torch_options: Iterable[str]) -> Path:
    """A folder with every wheel that the image needs; kept in `cache` for the next time."""
    pins = FILES / "constraints-amd64.txt"
    wanted = (ROOT / "pyproject.toml").read_bytes() + pins.read_bytes()
    wheels = cache / f"wheels-{hashlib.sha256(wanted).hexdigest()[:8]}"
    done = wheels / "done"
    if not done.exists():
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels))
        # The image's Python may be another than ours.
        pip += ("--python-version", PYTHON, "--only-binary", ":all:", "--constraint", str(pins))
        call(*pip, *torch_options, "torch")
        call(*pip, "--find-links", str(wheels), str(ROOT), "hatchling>=1.27")
        done.touch()
    return wheels


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP to the engines; gives its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer((HOST_ADDRESS, WHEELS_PORT), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST_ADDRESS}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def build(engine: Engine, tag: str, wheels: Path) -> None:
    """Build the image from the Dockerfile as it is; pip takes its wheels from the folder."""
    with served(wheels) as url, tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, context)
        shutil.copytree(
            ROOT / "neuroswarm", context / "neuroswarm",
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
        options = f"--no-index --find-links {url} --trusted-host {HOST_ADDRESS}"
        engine.docker(
            "build", "--network", "host", "--tag", tag,
            "--build-arg", f"TORCH_OPTIONS={options}", "--build-arg", f"PIP_OPTIONS={options}",
            "--file", str(context / "neuroswarm/deployment/files/Dockerfile"), str(context),
        )  # fmt: skip


def find_image(engine: Engine, tag: str) -> str:
    """The id of an image; empty if the engine has none of that name."""
    return engine.docker("images", "--no-trunc", "--quiet", tag)


def copy(tag: str, source: Engine, targets: Iterable[Engine], folder: Path) -> None:
    """Copy an image to other engines that lack it, as a registry would."""
    wanted = find_image(source, tag)
    targets = [target for target in targets if find_image(target, tag) != wanted]
    if not targets:
        return
    archive = folder / "image.tar"
    source.docker("save", "--output", str(archive), tag)
    for target in targets:
        target.docker("load", "--quiet", "--input", str(archive))
    archive.unlink()


def rebuild(engines: Iterable[Engine], old: str, new: str) -> None:
    """Make another image of an old one on each engine, as an update brings it."""
    text = f"FROM {old}\nLABEL org.opencontainers.image.version={new.rpartition(':')[2]}\n"
    for engine in engines:
        engine.docker("build", "--quiet", "--tag", new, "-", text=text)
