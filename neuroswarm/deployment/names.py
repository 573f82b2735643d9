"""Which names, addresses and durations docker takes, so that a wrong one is told before it runs.

Refuses to know what they name. ConfigError from all: what was written, and how to write it.
Source: github.com/distribution/reference, regexp.go and normalize.go (images); moby/swarmkit,
manager/controlapi (services, secrets, configs); Go's time.ParseDuration.
"""

from __future__ import annotations

import re

from neuroswarm.errors import ConfigError
from neuroswarm.wire.hosts import is_address, is_host

PUSHED = "REGISTRY/NAME:TAG, like registry.lan:5000/neuroswarm:0.1.0"
"""How to write the name of an image that others pull."""
MAX_OBJECT_CHARACTERS = 64
"""Of the name of a docker secret or config."""
MAX_SERVICE_CHARACTERS = 63
MAX_PORT = 65535

_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]+))?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?P<registry>{_REGISTRY})/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}))?"
    r"(?P<digest>@[a-zA-Z][a-zA-Z0-9]*:[0-9a-fA-F]{32,})?"
)
_OBJECT = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]*[a-zA-Z0-9])?")
_SERVICE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?")
_DURATION = re.compile(r"0|(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|ms|s|m|h))+")
_INSTANT = re.compile(
    r"[0-9]+(?:\.[0-9]+)?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?)?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)


def require_image(text: str) -> str:
    """An image as docker names it: `[REGISTRY/]NAME[:TAG][@DIGEST]`."""
    _read_image(text)
    return text


def require_pushed_image(text: str | None) -> str:
    """An image's name with a registry or a user, and a tag, as everybody's machines pull it."""
    if text is None:
        raise ConfigError(f"no name to push under: give --image (write {PUSHED})")
    read = _read_image(text)
    path = read["path"] or ""
    if read["digest"]:
        raise ConfigError(f"no name to push under: {text!r} has a digest (write {PUSHED})")
    if read["registry"] in (None, "docker.io") and path.removeprefix("library/").count("/") == 0:
        raise ConfigError(
            f"no name to push under: {text!r} has no registry, which means Docker Hub's own "
            f"images, docker.io/library (write {PUSHED}, or USER/NAME:TAG for Docker Hub)"
        )
    if not read["tag"]:
        raise ConfigError(
            f"no name to push under: {text!r} has no tag; docker would take latest, which says "
            f"nothing of the version that nodes run (write {PUSHED})"
        )
    return text


def require_stack(text: str) -> str:
    """The name of a stack, which the names of its services begin with."""
    limit = MAX_SERVICE_CHARACTERS - len("_tracker")
    if not _SERVICE.fullmatch(text) or len(text) > limit:
        raise ConfigError(
            f"no name of a stack: {text!r} (letters and digits, - or _ between them, {limit} "
            "characters at most)"
        )
    return text


def require_object(what: str, text: str, *, prefix: str = "") -> str:
    """The name of a secret or config, or what follows `prefix` in it."""
    limit = MAX_OBJECT_CHARACTERS - len(prefix)
    if not _OBJECT.fullmatch(text) or len(text) > limit:
        raise ConfigError(
            f"no {what}: {text!r} (letters and digits, with - _ . between them, {limit} "
            "characters at most)"
        )
    return text


def require_secret(text: str) -> str:
    """The name of a docker secret."""
    return require_object("name of a docker secret", text)


def require_number(what: str, text: str, least: int, most: int) -> str:
    """A whole number from `least` to `most`, in digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise ConfigError(f"{what} is no number from {least} to {most}: {text!r}")
    return text


def require_place(text: str) -> str:
    """A machine's address, or an interface of this one, with a port or without."""
    host, port = _split(text)
    if not _is_name(host) or (port is not None and not _is_port(port)):
        raise ConfigError(
            f"no address of a machine: {text!r} (write HOST, HOST:PORT or [IPV6]:PORT, with a port "
            f"from 1 to {MAX_PORT} and no http:// before it)"
        )
    return text


def require_host(what: str, text: str) -> str:
    """A machine's address without a port, as it stands in a URL: IPv6 in brackets."""
    is_bracketed = text.startswith("[") and text.endswith("]")
    host = text[1:-1] if is_bracketed else text
    if not _is_name(host) or is_bracketed != (":" in host):
        raise ConfigError(
            f"{what} is no host: {text!r} (write a name, an IPv4 address or [IPV6], with no port "
            "after it and no http:// before it)"
        )
    return text


def require_duration(flag: str, text: str) -> str:
    """A duration as docker writes it."""
    if not _DURATION.fullmatch(text):
        raise ConfigError(
            f"{flag} is no duration: {text!r} (a number and its unit, s, m or h, like 60s or 1h30m)"
        )
    return text


def require_past(flag: str, text: str) -> str:
    """A duration before now, or an instant."""
    if not _DURATION.fullmatch(text) and not _INSTANT.fullmatch(text):
        raise ConfigError(
            f"{flag} is no time: {text!r} (write 10m, 2h, 2026-01-31 or 2026-01-31T12:00:00)"
        )
    return text


def _read_image(text: str) -> dict[str, str | None]:
    """Parts of an image's name, a part before the first `/` being a registry only if it reads so.

    That is docker's rule: `me/neuroswarm` is the user me at Docker Hub.
    """
    first, slash, _ = text.partition("/")
    looks_so = set(first) & set(".:") or first == "localhost" or first != first.lower()
    is_registry = slash and looks_so
    found = _IMAGE.fullmatch(text if is_registry else f"docker.io/{text}")
    if found is None or (found["port"] is not None and not _is_port(found["port"])):
        raise ConfigError(
            f"no name of an image: {text!r} (write {PUSHED}; small letters in the name, no http://)"
        )
    return found.groupdict()


def _split(text: str) -> tuple[str, str | None]:
    """Host and port of what was written; the host is empty where brackets do not fit."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_whole = bracket and ":" in host and rest[:1] in ("", ":")
        return (host if is_whole else "", rest[1:] if rest else None)
    if is_address(text):
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _is_name(host: str) -> bool:
    """Whether it is a host; a name may end with the dot of the root."""
    name = host.removesuffix(".")
    return is_host(host) or (name != host and is_host(name) and not is_address(name))


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 1 <= int(text) <= MAX_PORT
