"""What `neuroswarm deploy status` learns from nodes: of themselves, and of those they hear."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from neuroswarm.cli.deploy_status import ask_nodes
from neuroswarm.deployment.fleet import Said
from neuroswarm.deployment.readings import Machine

RECORDED = Path(__file__).parents[2] / "data" / "docker" / "nodes.jsonl"


def machine(name: str, address: str) -> Machine:
    """The recorded machine under another name and address."""
    said = json.loads(RECORDED.read_text())
    said["ID"], said["Status"]["Addr"] = name, address
    [made] = Machine.read_all(json.dumps(said))
    return made


HERE = machine("here", "192.0.2.1")
"""This machine: its node answers on loopback and says that it is at this address."""
HEARD = machine("heard", "192.0.2.2")
"""A machine whose node does not answer us; the one here hears it."""
UNKNOWN = machine("unknown", "192.0.2.3")
NOWHERE = machine("nowhere", "")

PAGES = {
    "/status": {"round": 7, "digest": "ab" * 32, "live_peers": 1, "hosts": ["192.0.2.1"]},
    "/peers": [
        {
            "address": "192.0.2.2:8101",
            "is_alive": True,
            "same_swarm": True,
            "round": 6,
            "digest": "cd" * 4,
        }
    ],
}


class Node(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(PAGES[self.path]).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Node) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_node_is_believed_of_itself_and_tells_of_those_it_hears(port: int):
    found = ask_nodes([HERE, HEARD, UNKNOWN, NOWHERE], port, timeout_s=0.3)
    assert found == {"here": Said(7, "ab" * 4, 1), "heard": Said(6, "cd" * 4, None)}


def test_where_no_node_answers_nothing_is_known():
    free = 1  # nothing listens there
    assert ask_nodes([HERE, HEARD], free, timeout_s=0.3) == {}
