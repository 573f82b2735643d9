"""What docker complained of, in one line that says what to do.

Refuses to run anything. The texts are those of docker 20.10 to 28.2, buildx 0.13, compose 2.26.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from neuroswarm.errors import DeployError, DockerUnavailable

MAX_SAID_CHARACTERS = 600
"""Of docker's own message; the rest is cut."""


class _Known(NamedTuple):
    """A complaint that is known: how it reads, what it means, what to do."""

    pattern: re.Pattern[str]
    kind: type[DeployError]
    advice: str


def _known(pattern: str, kind: type[DeployError], advice: str) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), kind, advice)


_KNOWN = (
    _known(
        r"permission denied while trying to connect",
        DockerUnavailable,
        "this user may not use docker: run it with sudo, or add the user to the group docker "
        "(`sudo usermod -aG docker $USER`, then log in anew)",
    ),
    _known(
        r"unable to resolve docker endpoint",
        DockerUnavailable,
        "see `docker context ls`, and the variables DOCKER_CONTEXT and DOCKER_HOST",
    ),
    _known(
        r"cannot connect to the docker daemon|error during connect|failed to connect to the docker",
        DockerUnavailable,
        "start it (`sudo systemctl start docker`), or name another with DOCKER_HOST or "
        "`docker context use`",
    ),
    _known(
        r"worker nodes can't be used",
        DockerUnavailable,
        "this machine is a worker: run it on a manager, or point DOCKER_HOST or a docker context "
        "at one",
    ),
    _known(
        r"is not a swarm manager|is not part of a swarm",
        DockerUnavailable,
        "this machine is in no docker swarm: make one with `neuroswarm deploy init`, or point "
        "DOCKER_HOST or a docker context at a manager",
    ),
    _known(
        r"multi-platform build is not supported|multiple platforms feature is currently not",
        DeployError,
        "make a builder that can: `docker buildx create --driver docker-container --use`, or "
        "build for one machine type with --platforms linux/amd64 --load",
    ),
    _known(
        r"exec format error|exec user process caused",
        DeployError,
        "this machine cannot run programs of the other processor: `docker run --privileged --rm "
        "tonistiigi/binfmt --install all` teaches it",
    ),
    _known(
        r"already part of a swarm",
        DeployError,
        "to change to another swarm leave the present one first: `docker swarm leave`",
    ),
    _known(
        r"specify one with --advertise-addr|system's IP address to use could not be uniquely",
        DeployError,
        "give --advertise ADDRESS: the one of this machine that the others reach",
    ),
    _known(
        r"secret not found",
        DeployError,
        "make it with `neuroswarm deploy init`, or name the one there is with --secret "
        "(`docker secret ls`)",
    ),
    _known(
        r"only updates to Labels are allowed",
        DeployError,
        "a secret or settings file that runs is never changed: give the new one another name "
        "(--secret, --settings-version)",
    ),
    _known(
        r"['\"]docker node inspect['\"] requires at least 1 argument",
        DeployError,
        "no machine has the tracker's label: `neuroswarm deploy label NODE --tracker`, or give "
        "--tracker-host",
    ),
    _known(
        r"['\"]docker volume rm['\"] requires at least 1 argument",
        DeployError,
        "this machine has no volumes of the stack, so there is nothing to delete",
    ),
    _known(
        r"invalid service name or ID: value is empty|requires exactly 1 argument",
        DeployError,
        "none of the service's tasks runs on that machine: see `neuroswarm deploy status`",
    ),
    _known(
        r"not have a previous spec",
        DeployError,
        "it was never updated, so there is nothing to go back to",
    ),
    _known(
        r"(in)?valid join token|remote CA does not match fingerprint",
        DeployError,
        "it is another swarm's, or no longer in use: `docker swarm join-token worker` on the "
        "manager prints the one that is",
    ),
    _known(
        r"code = Unavailable.*dial tcp",
        DeployError,
        "is it a manager's address (`docker node ls` there), with TCP 2377 open to this machine?",
    ),
    _known(
        r"join the swarm will continue in the background",
        DeployError,
        "a slow machine joins yet: `docker info` then says `Swarm: active`; if it stays pending "
        "no manager answers at that address (TCP 2377): `docker swarm leave --force`, then again",
    ),
    _known(
        r"failed to remove some resources",
        DeployError,
        "docker was still ending what is there: run it once more",
    ),
    _known(
        r"update paused due to failure",
        DeployError,
        "look at `neuroswarm deploy status` and `neuroswarm deploy logs`, go back with "
        "`neuroswarm deploy update --rollback`",
    ),
    _known(
        r"node \S+ not found|ambiguous",
        DeployError,
        "`docker node ls` shows the names; of two with one name give the id",
    ),
    _known(
        r"service \S+ not found|no such service|no such task or service|nothing found in stack",
        DeployError,
        "nothing of that name runs here: `docker stack ls` shows what does (--name)",
    ),
)


_IS_UNKNOWN = re.compile(
    r"unknown command: docker (buildx|compose)|is not a docker command"
    r"|unknown (shorthand )?flag.*(Run|See) 'docker --help'",
    re.DOTALL,
)
"""How a client answers to the name of a plugin that it lacks."""


def explain(line: str, exit_code: int, said: str) -> DeployError:
    """The error to raise when a docker command ended badly.

    Args:
        line: The command, as a shell takes it.
        exit_code: What it ended with.
        said: What it wrote to standard error, or the end of it.
    """
    if missing := _missing_plugin(line, said):
        return missing
    lines = _significant(said)
    for pattern, kind, advice in _KNOWN:
        for told in lines:
            if pattern.search(told):
                return kind(f"docker: {_shorten(told)} ({advice}); the command: {line}")
    errors = [told for told in lines if re.match(r"(ERROR|Error)\b", told)]
    message = _shorten(" ".join(errors[-1:] or lines[-6:])) or "not a word"
    return DeployError(f"docker failed, exit code {exit_code}: {message}; the command: {line}")


def _missing_plugin(line: str, said: str) -> DockerUnavailable | None:
    """The error if the client does not know the command: it then takes the flags for its own."""
    found = re.search(r"docker (buildx|compose) ", line)
    if not found or not _IS_UNKNOWN.search(said):
        return None
    plugin = found[1]
    return DockerUnavailable(
        f"docker has no plugin {plugin}: install the package docker-{plugin}-plugin (Debian's own: "
        f"docker-{plugin}); the command: {line}"
    )


def _significant(said: str) -> list[str]:
    """The lines without the usage that follows a wrong command line."""
    told = re.split(r"^(?:Usage:|Run 'docker|See 'docker)", said, maxsplit=1, flags=re.MULTILINE)[0]
    return [line.strip() for line in told.splitlines() if line.strip()]


def _shorten(text: str) -> str:
    """Without the prefix that says that it is an error, and not longer than fits."""
    text = re.sub(r"^(Error response from daemon|ERROR|Error|docker): ", "", text)
    hidden = len(text) - MAX_SAID_CHARACTERS
    return text if hidden <= 0 else f"{text[:MAX_SAID_CHARACTERS]}..."


def no_client() -> DockerUnavailable:
    """The error to raise where there is no docker program."""
    return DockerUnavailable(
        "there is no program `docker` on this machine's PATH: install Docker Engine "
        "(https://docs.docker.com/engine/install), or on Debian the package docker.io"
    )
