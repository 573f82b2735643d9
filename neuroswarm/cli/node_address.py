"""Where a running node answers over HTTP, from what people write.

Refuses to ask it.
"""

from __future__ import annotations

from neuroswarm.cli.ports import DEFAULT_HTTP_PORT
from neuroswarm.values import Endpoint

HELP = "PORT, HOST, HOST:PORT, [IPV6]:PORT or http://HOST:PORT"
"""How to name a node, for people."""


def read_node_url(text: str) -> str:
    """`http://host:port` of a node: from a port of this machine, a host, or a URL.

    Without a port it is 7101; the path `/status` may follow.

    Raises:
        ConfigError: it is none of these; says why.
    """
    from neuroswarm.discovery.address_text import read_address

    place = text.strip()
    if place.isdecimal():
        place = f"127.0.0.1:{place}"
    complaint = f"no address of a node: {text!r} (write {HELP})"
    written = read_address(place, complaint, schemes=("http", "https"), page="/status")
    return f"{written.scheme}://{Endpoint(written.host, written.port or DEFAULT_HTTP_PORT)}"
