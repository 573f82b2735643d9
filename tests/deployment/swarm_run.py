"""Deploys neuroswarm's own stack and compose files on real Docker engines, and judges what comes.

Run it with `make swarm-test`, or `python tests/deployment/swarm_run.py --help`. It starts engines
of its own (as root), or takes those that DOCKER_HOSTS names, commas between them: the first one
manages a swarm of which the others are workers, and no engine is killed then.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from lab_engines import Engine, Lab, LabFailed, given, join
from lab_images import FILES, build, copy, get_base, get_wheels, rebuild
from swarm_steps import Act, compose_act, host_act, overlay_act

from neuroswarm.errors import NeuroswarmError

ACTS = {"host": host_act, "overlay": overlay_act, "compose": compose_act}
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
inner_steps = 200

[data]
max_bytes = 200000

[resources]
max_cpu_threads = 1
"""
"""A model so small that four nodes train on a small machine."""


def prepare(lab: Lab, hosts: list[str], options: argparse.Namespace) -> dict[int, Engine]:
    """Engines with the image, all but the last of them one swarm."""
    cache = Path(options.cache)
    cache.mkdir(parents=True, exist_ok=True)
    if hosts:
        return given(hosts)
    lab.open()
    engines = {number: lab.start(number) for number in range(1, NUM_ENGINES + 1)}
    manager = engines[1]
    say(f"base image {get_base(manager, cache)}")
    wheels = get_wheels(cache, options.torch_options.split())
    began = time.monotonic()
    build(manager, FIRST, wheels)
    say(f"image built from the Dockerfile in {time.monotonic() - began:.0f} s")
    say(manager.docker("history", "--format", "{{.Size}}\t{{.CreatedBy}}", FIRST))
    copy(FIRST, manager, (e for n, e in engines.items() if n > 1), lab.folder)
    rebuild(engines.values(), FIRST, SECOND)
    manager.docker("swarm", "init", "--advertise-addr", "10.78.0.1")
    for number in range(2, NUM_ENGINES):
        join(manager, engines[number])
    return engines


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
        "--torch-options",
        default="--index-url https://download.pytorch.org/whl/cpu",
        help="options of pip with which torch's build for processors is found",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Run; 0 if everything held."""
    options = parse(sys.argv[1:])
    hosts = [host for host in os.environ.get("DOCKER_HOSTS", "").split(",") if host]
    folder = Path(tempfile.mkdtemp(prefix="neuroswarm-swarm-test-"))
    lab = Lab(folder)
    files = folder / "files"
    shutil.copytree(FILES, files)
    (files / "node.toml").write_text(NODE_TOML)
    try:
        engines = prepare(lab, hosts, options)
        for name in options.acts.split(","):
            ACTS[name](Act(engines, lab, files, FIRST, SECOND, is_own=not hosts))
    except (LabFailed, TimeoutError, AssertionError, NeuroswarmError) as error:
        say(f"FAILED: {error}")
        return 1
    finally:
        lab.close()
    say("everything held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
