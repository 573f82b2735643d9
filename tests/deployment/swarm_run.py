"""Deploys neuroswarm's own stack and compose files on real Docker engines, and judges what comes.

Run it with `make swarm-test`, or `python tests/deployment/swarm_run.py --help`. It starts engines
of its own (as root), or takes those that DOCKER_HOSTS names, commas between them: the first one
manages a swarm of which the others are workers, and no engine is killed then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from lab_engines import NETWORK, Engine, Lab, LabFailed, given, join, leave
from lab_images import BASE, FILES, build, copy, find_image, get_base, get_wheels, rebuild
from swarm_steps import VOLUME, Act, alone_act, compose_act, host_act, overlay_act
from verb_steps import verbs_act

from neuroswarm.errors import NeuroswarmError

ACTS = {
    "host": host_act,
    "overlay": overlay_act,
    "compose": compose_act,
    "alone": alone_act,
    "verbs": verbs_act,
}
FIRST, SECOND = "neuroswarm:first", "neuroswarm:second"
NUM_ENGINES = 4

NODE_TOML = """\
[training]
dim = 16
num_layers = 1
num_heads = 1
context = 32
batch_size = 4
warmup_steps = 0
eval_batches = 1

[diloco]
inner_steps = 60

[guest]
cpu_share = 0.3

[data]
max_bytes = 200000

[resources]
max_cpu_threads = 1
"""
"""A model so small, and so much rest, that four nodes train on a small machine."""


def prepare(lab: Lab, hosts: list[str], options: argparse.Namespace) -> dict[int, Engine]:
    """Engines with the image, all but the last of them one swarm."""
    cache = Path(options.cache)
    cache.mkdir(parents=True, exist_ok=True)
    if hosts:
        return given(hosts)
    lab.open()
    engines = {number: lab.start(number) for number in range(1, NUM_ENGINES + 1)}
    manager, others = engines[1], [engines[number] for number in range(2, NUM_ENGINES + 1)]
    if not (options.as_built and find_image(manager, FIRST)):
        make_image(manager, cache, options.torch_options.split())
    copy(FIRST, manager, others, lab.folder)
    rebuild(engines.values(), FIRST, SECOND)
    found_swarm(engines)
    return engines


def make_image(engine: Engine, cache: Path, torch_options: list[str]) -> None:
    """Build the image, on a base that is pulled or made."""
    if not find_image(engine, BASE):
        say(f"base image {get_base(engine, cache)}")
    wheels = get_wheels(cache, torch_options)
    began = time.monotonic()
    build(engine, FIRST, wheels)
    say(f"image built from the Dockerfile in {time.monotonic() - began:.0f} s")
    say(engine.docker("history", "--format", "{{.Size}}\t{{.CreatedBy}}", FIRST))


def found_swarm(engines: dict[int, Engine]) -> None:
    """All but the last engine become one Docker Swarm; nothing of what they were before is left."""
    for engine in engines.values():
        leave(engine)
        for name in engine.docker("ps", "--all", "--quiet").split():
            engine.docker("rm", "--force", name)
        engine.docker("volume", "rm", "--force", VOLUME)
    engines[1].docker("swarm", "init", "--advertise-addr", f"{NETWORK}.1")
    for number in range(2, NUM_ENGINES):
        join(engines[1], engines[number])


def say(text: str) -> None:
    """A line, or several, for people."""
    print(text, flush=True)  # noqa: T201


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acts", default=",".join(ACTS), help=f"of {', '.join(ACTS)}")
    parser.add_argument(
        "--cache",
        default="build/swarm-test",
        help="folder that keeps the base system and the wheels for the next time",
    )
    parser.add_argument(
        "--keep",
        help="folder of the engines, that are left there running, with their images, and used "
        "again the next time; default: everything is removed at the end",
    )
    parser.add_argument(
        "--as-built",
        action="store_true",
        help="with --keep: take the image of the last time, if there is one",
    )
    parser.add_argument(
        "--torch-options",
        default="--index-url https://download.pytorch.org/whl/cpu",
        help="options of pip with which torch's build for processors is found",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Run; 0 if everything held."""
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # engines end too
    hosts = [host for host in os.environ.get("DOCKER_HOSTS", "").split(",") if host]
    folder = Path(options.keep or tempfile.mkdtemp(prefix="neuroswarm-swarm-test-")).resolve()
    lab = Lab(folder)
    files = folder / "files"
    shutil.copytree(FILES, files, dirs_exist_ok=True)
    (files / "node.toml").write_text(NODE_TOML)
    try:
        engines = prepare(lab, hosts, options)
        for name in options.acts.split(","):
            ACTS[name](Act(engines, lab, files, FIRST, SECOND, is_own=not hosts))
    except (LabFailed, TimeoutError, AssertionError, NeuroswarmError) as error:
        say(f"FAILED: {error}")
        return 1
    finally:
        if not options.keep:
            lab.close()
    say("everything held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
